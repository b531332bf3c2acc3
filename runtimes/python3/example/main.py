def handler(payload, context):
    name = (payload or {}).get("name", "world")
    print(f"greeting {name}")
    return {"greeting": f"Hello, {name}!", "version": context.version}
