"""A client of Dask's: prints a line of JSON with what each of its workers saw. usage: dask_program.py SCHEDULER WORKERS"""
import json
import os
import sys

import distributed

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import device  # noqa: E402

client = distributed.Client(sys.argv[1])
client.wait_for_workers(int(sys.argv[2]), timeout=60)
workers = sorted(client.scheduler_info()["workers"])
client.upload_file(device.__file__)
one = client.submit(device.look, workers=workers[0], pure=False).result()
both = client.gather([client.submit(device.look, 3.0, workers=worker, pure=False) for worker in workers])
print(json.dumps({"one": one, "both": both}), flush=True)
