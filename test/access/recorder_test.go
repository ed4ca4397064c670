package access

import (
	"net"
	"testing"
	"time"
)

// TestTheRecorderSeesHTTP2 as it came, good or not.
func TestTheRecorderSeesHTTP2(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := Record(l)
	defer r.Stop()
	for s, forbidden := range map[stream]bool{
		usual("GET", "/public/a"):                                        false,
		usual("GET", "/team/x", "x-team a"):                              false,
		usual("POST", "/upload", "\n--\nx-sum a"):                        false,
		usual("GET", "/admin"):                                           true,
		usual("DELETE", "/public/a"):                                     true,
		usual("GET", "/team/x", "x-team a", "x-team c"):                  true,
		usual("GET", "/team/x", "x-team a\n--\nx-team c"):                true,
		usual("GET", "/public/a", "host evil"):                           true,
		usual("GET", "/public/a", "connection close"):                    true,
		usual("GET", "/public/a", ":path /public/b"):                     true,
		usual("GET", "/public/a", "X-Team a"):                            true,
		usual("GET", "/public/a", "x y\r\nz: a"):                         true,
		usual("GET", "http://cart/public/a"):                             true,
		usual("POST", "/upload", "\n--\n:path /admin"):                   true,
		":method CONNECT\n:authority cart:8080":                          true,
		":method GET\n:scheme http\nx y\n:authority cart\n:path /upload": true,
	} {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(patience))
		if err := (&way2{streams: []stream{s}}).send(c); err != nil {
			t.Error(err)
		}
		c.Close()
		if reached, wrong := r.Judge(); reached != 1 || (len(wrong) > 0) != forbidden {
			t.Errorf("%q: %d requests, wrong %q, want forbidden %t", s, reached, wrong, forbidden)
		}
	}
}
