"""The demo: the shop under load on real servers, with everything that can go wrong going wrong."""
