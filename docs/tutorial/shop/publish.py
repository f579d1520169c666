"""Place three orders, one of them for a voucher, which comes without any parcel."""

from decimal import Decimal

from shop import OrderPlaced, app

for order_id, parcels in (("o-1", 1), ("o-2", 2), ("voucher", 0)):
    order = OrderPlaced(order_id=order_id, total=Decimal(40), parcels=parcels)
    app.publish(order, id=order_id, root=order_id)
    print(f"placed {order_id}")
