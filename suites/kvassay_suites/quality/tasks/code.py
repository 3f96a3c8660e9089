"""Code: a module is read, then calls of its functions are completed."""

from __future__ import annotations

from typing import Final

from .item import Conversation, Family, Item, reading, with_rivals

_SHAPES: Final = """\
def area_of_circle(radius):
    return 3.14159 * radius * radius

def edge_of_cube(volume):
    return volume ** (1 / 3)

def diagonal_of_square(side):
    return 1.41421 * side

def height_of_cone(volume, base):
    return 3 * volume / base

def perimeter_of_triangle(a, b, c):
    return a + b + c

def slope_of_line(x, y):
    return y / x

def middle_of_segment(a, b):
    return (a + b) / 2

def volume_of_sphere(radius):
    return 4.18879 * radius ** 3

def turns_of_wheel(distance, diameter):
    return distance / (3.14159 * diameter)

def sides_of_polygon(points):
    return len(points)

def mirror_of_point(x, y):
    return -x, y

def weight_of_plate(area, thickness):
    return 7.8 * area * thickness

def length_of_path(steps):
    return sum(steps)

def scale_of_map(paper, ground):
    return ground / paper

def is_inside_box(x, y, box):
    return box[0] <= x <= box[2] and box[1] <= y <= box[3]
"""

_SHOP: Final = """\
def add_item(cart, name, price):
    cart.append((name, price))

def total_price(cart):
    return sum(price for name, price in cart)

def remove_item(cart, name):
    cart[:] = [item for item in cart if item[0] != name]

def count_items(cart):
    return len(cart)

def cheapest_item(cart):
    return min(cart, key=lambda item: item[1])

def with_tax(price, rate):
    return price * (1 + rate)

def discount_price(price, percent):
    return price * (1 - percent / 100)

def empty_cart(cart):
    cart.clear()

def sort_by_name(cart):
    return sorted(cart)

def is_free(price):
    return price == 0

def names_of_items(cart):
    return [name for name, price in cart]

def split_bill(total, people):
    return total / people

def round_up(price):
    return -int(-price // 1)

def print_receipt(cart):
    for name, price in cart:
        print(name, price)

def has_item(cart, name):
    return any(item[0] == name for item in cart)
"""

_SHAPE_CALLS: Final = (
    ("the area of a circle of radius 3", "area_of_circle(3)"),
    ("the edge of a cube of volume 8", "edge_of_cube(8)"),
    ("the diagonal of a square of side 5", "diagonal_of_square(5)"),
    ("the height of a cone of volume 6 over a base of 2", "height_of_cone(6, 2)"),
    ("the perimeter of a triangle with sides 3, 4 and 5", "perimeter_of_triangle(3, 4, 5)"),
    ("the slope of the line through 2 and 6", "slope_of_line(2, 6)"),
    ("the middle of the segment from 1 to 7", "middle_of_segment(1, 7)"),
    ("the volume of a sphere of radius 2", "volume_of_sphere(2)"),
    ("how often a wheel of diameter 1 turns over a distance of 9", "turns_of_wheel(9, 1)"),
    ("the number of sides of the polygon `p`", "sides_of_polygon(p)"),
    ("the mirror image of the point 4, 7", "mirror_of_point(4, 7)"),
    ("the weight of a plate of area 2 and thickness 1", "weight_of_plate(2, 1)"),
    ("the length of the path `steps`", "length_of_path(steps)"),
    ("the scale of a map with 1 on paper for 9 on the ground", "scale_of_map(1, 9)"),
    ("whether the point 1, 2 is inside the box `b`", "is_inside_box(1, 2, b)"),
)

_SHOP_CALLS: Final = (
    ("puts a pen for 2 into the cart", "add_item(cart, 'pen', 2)"),
    ("gives the sum of all prices in the cart", "total_price(cart)"),
    ("takes the pen out of the cart", "remove_item(cart, 'pen')"),
    ("tells how many things are in the cart", "count_items(cart)"),
    ("finds what costs least in the cart", "cheapest_item(cart)"),
    ("gives the price 50 with a tax of 0.2", "with_tax(50, 0.2)"),
    ("takes 10 percent off the price 80", "discount_price(80, 10)"),
    ("makes the cart empty", "empty_cart(cart)"),
    ("sorts the cart by name", "sort_by_name(cart)"),
    ("tells whether a thing with price 0 costs nothing", "is_free(0)"),
    ("lists the names of what is in the cart", "names_of_items(cart)"),
    ("splits a bill of 90 among 3 people", "split_bill(90, 3)"),
    ("rounds the price 4.2 up", "round_up(4.2)"),
    ("prints the receipt of the cart", "print_receipt(cart)"),
    ("tells whether there is a pen in the cart", "has_item(cart, 'pen')"),
)


def _conversation(
    module: str, what: str, lead: str, calls: tuple[tuple[str, str], ...]
) -> Conversation:
    items = [Item(what.format(wish), f" {call}", lead) for wish, call in calls]
    opening = reading(f"This is a module in Python.\n\n{module}")
    return Conversation(opening, with_rivals(items))


FAMILY: Final = Family(
    "code",
    "calling the functions of a given module",
    (
        _conversation(_SHAPES, "Which call gives {}?", "result =", _SHAPE_CALLS),
        _conversation(_SHOP, "Which call {}?", "The call is", _SHOP_CALLS),
    ),
)
