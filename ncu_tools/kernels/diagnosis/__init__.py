"""Why a kernel takes the time it takes: causes ranked by what each can cost, with the numbers they stand on."""
