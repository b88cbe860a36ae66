"""A ball that is thrown, with the drag of air. Its variables are the parameters; it returns the campaign's outputs."""

import numpy as np

GRAVITY = 9.81  # m/s²
STEP = 0.005  # s


def simulate(angle, speed, drag):
    """`angle` in degrees, `speed` in m/s, `drag` in 1/m."""
    place = np.zeros(2)
    velocity = speed * np.array([np.cos(np.radians(angle)), np.sin(np.radians(angle))])
    path = [place]
    while place[1] >= 0:
        velocity = velocity - STEP * (np.array([0, GRAVITY]) + drag * np.linalg.norm(velocity) * velocity)
        place = place + STEP * velocity
        path.append(place)
    path = np.array(path)
    return {"distance": path[-1, 0], "height": path[:, 1].max(), "path": path[::10, 1]}
