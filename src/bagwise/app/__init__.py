"""The planner in the browser: what the user set -> numbers -> pictures, and a JSON API beside it.

    state     what the user set, from a link or fields, and the commands that do it
    curves    state -> numbers, all from `plan` and `theory`
    figures   numbers -> pictures, as plain dictionaries for plotly
    page      the page and what happens on it
    api       the same numbers as JSON; errors as one sentence
    uploads   a zipped Release, estimated by a process with little memory and time
    estimate  that process
    server    the application, and the server that bounds threads, connections and sizes

Needs bagwise[app]: `page` and `server` import Dash, `api` Flask, `server` waitress.
"""
