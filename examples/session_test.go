package examples_test

import (
	"net/http/cookiejar"
	"testing"
)

func TestSessionsKeepAClientAtItsEndpoint(t *testing.T) {
	s := example(t, "sessions", "a:9001", "b:9003", "shop-v2:9002")
	const host = "shop.example"
	got := s.count(100, host, "/")
	if got["a"]+got["b"] != 90 || got["shop-v2"] != 10 {
		t.Errorf("100 requests without a session went to %v, want 90 to shop-v1 and 10 to shop-v2", got)
	}
	for range 5 {
		first := s.get(host, "/api/cart")
		token := first.Header.Get("x-shop-session")
		if token == "" {
			t.Fatal("the first answer has no token")
		}
		for range 20 {
			s.served(s.get(host, "/api/order", "x-shop-session: "+token), first.body)
		}
	}
	s.client.Jar, _ = cookiejar.New(nil)
	first := s.get(host, "/")
	if c := first.Cookies(); len(c) != 1 || c[0].Name != "shop-session" || c[0].MaxAge != 12*60*60 {
		t.Fatalf("cookies %v, want one for twelve hours", c)
	}
	for range 50 {
		s.served(s.get(host, "/cart"), first.body)
	}
}
