package cli_test

import "testing"

func TestExplainShowsWhereConnectionsGo(t *testing.T) {
	weir("", "explain", examples+"split-tcp", "--", "tcp://db:5432").want(t, 0, "connection  tcp://db:5432", "services/5432  port 5432, tcp",
		"100 %   default/db:5432, split by TrafficSplit default/db", "75 %    default/db-v1:5432  at 127.0.0.1:9001", "25 %    default/db-v2:5432  at 127.0.0.1:9002")
	weir("", "explain", examples+"tcp-route", "--", "tcp://127.0.0.1:6379").want(t, 0, "TCPRoute default/cache spec.rules[0]",
		"90 %    default/cache-v2:6379", "10 %    default/cache-v1:6379")
	weir("", "explain", examples+"tcp-route", "--", "tcp://a:1").want(t, 3, "nothing listens for tcp on port 1; there is: tcp on *:6379")
	weir("", "explain", examples+"tcp-route", "--", "http://a:6379/").want(t, 3, "nothing listens for http on port 6379")
	weir("", "explain", examples+"tcp-route", "--", "tcp://a/").want(t, 2, "stderr:want tcp://HOST:PORT")
	weir("", "convert", examples+"split-tcp").want(t, 0, "kind: TCPRoute", "weight: 3")
}
