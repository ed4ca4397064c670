# Rails' router (Action Dispatch) on Puma if it is installed, else bare Rack.
say = ->(read) { ->(env) { [200, { "X-Reads" => read, "Content-Length" => "0" }, []] } }
if ENV["PATHS_RUBY"] == "rails"
  require "action_controller"
  require "action_dispatch"
  routes = ActionDispatch::Routing::RouteSet.new
  routes.draw do
    match "/admin", to: say["admin"], via: :all
    match "/admin/*rest", to: say["admin"], via: :all, format: false
    match "*rest", to: say["other"], via: :all, format: false
    match "/", to: say["other"], via: :all
  end
  run routes
else
  run ->(env) { p = env["PATH_INFO"]; say[p == "/admin" || p.start_with?("/admin/") ? "admin" : "other"][env] }
end
