"""A training that knows nothing of the library. usage: train.py [BYTES]     BYTES: a tensor of so many, too"""
import sys

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 64)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=False)
for step in range(5):
    optimizer.zero_grad()
    output = model(torch.zeros(256, 512, device="cuda"))
    output.sum().backward()
    optimizer.step()
torch.cuda.synchronize()
print("trained", tuple(output.shape))
if sys.argv[1:]:
    try:
        torch.zeros(int(sys.argv[1]), dtype=torch.uint8, device="cuda")
        print("served")
    except torch.OutOfMemoryError as error:
        print("refused:", str(error).splitlines()[0])
print("free of", *torch.cuda.mem_get_info())
