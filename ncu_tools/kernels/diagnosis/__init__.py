"""Why a kernel takes its time: causes ranked by what each can cost, with the numbers behind them."""
