#!/bin/sh
# Compile the kernels again: nvcc (13.0), nvdisasm and cuobjdump (13.1), and ptxas of CUDA 12.4 as PTXAS_OLD.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=/tmp/kernels && mkdir -p $work && cp "$here/kernels.cu" $work && cd $work
nvcc -arch=sm_80 -cubin -Xptxas -v kernels.cu -o kernels.sm_80.cubin 2>ptxas.printed
nvcc -arch=sm_90 -cubin -lineinfo kernels.cu -o kernels.sm_90.cubin
nvcc -arch=sm_90 -cubin -DCHANGED kernels.cu -o changed.sm_90.cubin
both="-gencode arch=compute_75,code=sm_75 -gencode arch=compute_120,code=[sm_120,compute_120]"
nvcc -fatbin $both -Xfatbin -compress-all kernels.cu -o zstd.fatbin
nvcc -fatbin $both -Xfatbin -compress-all -compress-mode=speed kernels.cu -o lz4.fatbin
cuobjdump -res-usage kernels.sm_90.cubin >cuobjdump.printed
nvcc -ptx -arch=compute_86 kernels.cu -o kernels.ptx
sed 's/^\.version.*/.version 8.4/' kernels.ptx >old.ptx
"$PTXAS_OLD" -arch=sm_86 old.ptx -o old.sm_86.cubin
for name in kernels changed; do nvdisasm -c $name.sm_90.cubin | tr -s ' \t' ' ' >$name.sm_90.sass; done
cp kernels.sm_80.cubin kernels.sm_90.cubin changed.sm_90.cubin old.sm_86.cubin *.fatbin ptxas.printed cuobjdump.printed kernels.ptx ./*.sass "$here"
