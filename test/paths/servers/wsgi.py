"""Applications for gunicorn: bare WSGI, Django, Flask."""


def plain(environ, start):
    path = environ["PATH_INFO"]
    read = "admin" if path == "/admin" or path.startswith("/admin/") else "other"
    start("200 OK", [("X-Reads", read), ("Content-Length", "0")])
    return [b""]


def make_flask():
    import flask

    app = flask.Flask("paths")
    say = lambda read: flask.Response(headers={"X-Reads": read})
    app.add_url_rule("/admin/<path:rest>", "admin", lambda rest: say("admin"))
    app.add_url_rule("/admin", "admin2", lambda: say("admin"))
    app.add_url_rule("/", "root", lambda: say("other"))
    app.add_url_rule("/<path:rest>", "other", lambda rest: say("other"))
    return app


def make_django():
    import django
    from django.conf import settings
    from django.core.wsgi import get_wsgi_application
    from django.http import HttpResponse
    from django.urls import re_path
    import sys, types

    def say(read):
        def view(request, *args, **kwargs):
            response = HttpResponse()
            response["X-Reads"] = read
            return response

        return view

    urls = types.ModuleType("paths_urls")
    urls.urlpatterns = [re_path(r"^admin(/.*)?$", say("admin")), re_path(r"", say("other"))]
    sys.modules["paths_urls"] = urls
    settings.configure(ROOT_URLCONF="paths_urls", ALLOWED_HOSTS=["*"], SECRET_KEY="x")
    return get_wsgi_application()
