# The two commands of the README, a stage each. The first is what `docker build -t ncu-bench .` makes; then, with reports of yours,
# `docker run --rm -v "$PWD":/work -w /work ncu-bench hotspots report.ncu-rep`. Every test: `docker build --target tests .`
FROM python:3.11-bookworm AS tests
WORKDIR /ncu-bench
COPY . .
RUN .ci/run

FROM python:3.11-bookworm AS quickstart
WORKDIR /ncu-bench
COPY . .
RUN python3 -m venv --upgrade-deps .venv && .venv/bin/pip install --quiet '.[models]' --constraint constraints.txt && .venv/bin/ncu-bench profile resnet18 --metrics flops,dram -o run && .venv/bin/ncu-bench roofline run -o roofline.svg
ENV PATH=/ncu-bench/.venv/bin:$PATH
ENTRYPOINT ["ncu-bench"]
