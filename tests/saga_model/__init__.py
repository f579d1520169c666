"""Random chains in the card room, with rejections, crashes and redeliveries, on real servers.

It does what a broker and its workers do, one delivery at a time and in any order: `World`. A crash
strikes before or after any step that touches something outside; what was in hand is delivered
again, as after `kill -9`. Nothing of the product is replaced but that.
"""
