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

func TestUsersStayWithTheirVersionInARollout(t *testing.T) {
	s := example(t, "rollout-sessions", "shop:9001", "shop-canary:9002")
	defer s.weir.Stop()
	const host = "shop.example"
	visit := func(cookies string) (version, session string) {
		t.Helper()
		got := s.get(host, "/", "Cookie: "+cookies)
		for _, c := range got.Cookies() {
			session = "; " + c.Name + "=" + c.Value
		}
		return got.body, session
	}
	s.awaitStatus("Step 1 of 3 waits")
	if version, _ := visit("beta=yesterday; theme=dark"); version != "shop" {
		t.Errorf("a user whom step 1 does not name reached %s", version)
	}
	version, beta := visit("theme=dark; beta=yes")
	if version != "shop-canary" || beta == "" {
		t.Fatalf("a user whom step 1 names reached %s, with the session %q", version, beta)
	}
	_, stable := visit("theme=dark")

	s.rollout("promote", "shop")
	s.awaitStatus("Step 2 of 3 waits")
	for range 20 {
		if version, _ := visit("theme=dark" + beta); version != "shop-canary" {
			t.Errorf("step 2: a user of the canary reached %s", version)
		}
		if version, _ := visit("theme=dark" + stable); version != "shop" {
			t.Errorf("step 2: a user of the stable version reached %s", version)
		}
	}
	if got := s.count(20, host, "/"); got["shop-canary"] != 4 {
		t.Errorf("step 2: new users reached %v, want 4 of 20 at the canary", got)
	}

	s.rollout("promote", "shop")
	s.awaitStatus("All requests go to the new version.")
	if version, _ := visit("theme=dark" + stable); version != "shop-canary" {
		t.Errorf("at the end a user of the stable version reached %s, which has no share", version)
	}
}
