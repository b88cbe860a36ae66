#!/usr/bin/env python3
"""The heat that a house needs in a year: one room, hour by hour. house.py INSULATION_CM WINDOWS_M2 AIR_CHANGES SETPOINT"""

import math
import os
import random
import sys

insulation, windows, changes, setpoint = (float(word) for word in sys.argv[1:5])
weather = random.Random(int(os.environ.get("SLIPWAY_SEED", "0")))

# A wall is as good as its insulation and its bricks together; W/K over 220 m2 of walls and roof.
walls = 220 / (0.3 + insulation / 100 / 0.035)
air = changes * 320 * 0.34
losses = walls + windows * 1.1 + air
capacity = 9000.0  # Wh/K of walls and floors

inside, heat, cloud = setpoint, 0.0, 0.5
with open("year.csv", "w") as year:
    print("hour,inside,outside,heat", file=year)
    for hour in range(8760):
        season = -math.cos(2 * math.pi * (hour / 8760 - 0.04))
        day = -math.cos(2 * math.pi * (hour % 24 - 3) / 24)
        cloud = min(1, max(0, cloud + weather.gauss(0, 0.08)))
        outside = 9 + 10 * season + 4 * day * (1 - cloud)
        sun = max(0, day) * (0.35 + 0.25 * season) * (1 - 0.7 * cloud) * 400 * windows * 0.5
        needed = max(0, losses * (setpoint - outside) - sun - 300 + (setpoint - inside) * capacity / 12)
        power = min(needed, 15000)
        inside += (power + sun + 300 - losses * (inside - outside)) / capacity
        heat += power / 1000
        if hour % 24 == 0:
            print(f"{hour},{inside:.2f},{outside:.2f},{power:.0f}", file=year)
        # Windows are opened.
        inside = min(inside, 26)

print(f"heating {heat:.1f} kWh")
print(f"cost {heat * 0.12 + insulation * 9 + windows * 6:.1f} EUR")
