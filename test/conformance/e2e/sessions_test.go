package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// user is a browser: it sends the cookies that it was given.
type user struct {
	client  *http.Client
	visits  int
	version string          // that answered last
	seen    map[string]bool // versions that answered
}

// users visit one URL in turns until they are stopped. Each one's visits follow each other, as a person's do.
type users struct {
	url  string
	ctx  context.Context
	stop context.CancelFunc
	wait sync.WaitGroup

	mu       sync.Mutex
	leaving  string // the version that a release replaces: who saw another one is not to see it again; empty during a rollback
	arriving string
	only     bool // the new version is for users of the beta alone
	failures []string
	strays   []string
}

// group is some of the users.
type group struct {
	*users
	beta    bool
	members []*user
}

func startUsers(t *testing.T, url string) *users {
	ctx, cancel := context.WithCancel(t.Context())
	u := &users{url: url, ctx: ctx, stop: cancel}
	t.Cleanup(func() { cancel(); u.wait.Wait() })
	return u
}

// join starts a group of users, who have cookies of their own; in the beta one of them is beta=yes.
func (u *users) join(t *testing.T, n int, beta bool) *group {
	t.Helper()
	site, err := url.Parse(u.url)
	if err != nil {
		t.Fatal(err)
	}
	g := &group{users: u, beta: beta}
	for range n {
		jar, err := cookiejar.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		cookies := []*http.Cookie{{Name: "theme", Value: "dark"}, {Name: "beta", Value: "no"}}
		if beta {
			cookies[1].Value = "yes"
		}
		jar.SetCookies(site, cookies)
		g.members = append(g.members, &user{client: &http.Client{Jar: jar, Timeout: 30 * time.Second}, seen: map[string]bool{}})
	}
	// Half of the visits come over a connection that is kept, which users share as behind one proxy of a company; half over new ones.
	for i := range 2 {
		transport := &http.Transport{DisableKeepAlives: i == 0, MaxIdleConnsPerHost: 1}
		var mine []*user
		for k, m := range g.members {
			if k%2 == i {
				m.client.Transport = transport
				mine = append(mine, m)
			}
		}
		u.wait.Go(func() {
			defer transport.CloseIdleConnections()
			for {
				for _, m := range mine {
					g.visit(m)
					select {
					case <-time.After(pause):
					case <-u.ctx.Done():
						return
					}
				}
			}
		})
	}
	return g
}

func (g *group) visit(m *user) {
	g.mu.Lock()
	only := g.only // a visit that began before a step ended may be answered after it, but not the other way around
	g.mu.Unlock()
	a, err := ask(context.WithoutCancel(g.ctx), m.client, g.url)
	if err == nil && a.Status != http.StatusOK {
		err = fmt.Errorf("status %d", a.Status)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil {
		g.failures = append(g.failures, fmt.Sprintf("%s: %v", time.Now().Format("15:04:05.000"), err))
		return
	}
	now := time.Now().Format("15:04:05.000")
	if a.Service == g.leaving && m.seen[g.arriving] {
		g.strays = append(g.strays, fmt.Sprintf("%s: one who had seen %s saw %s again", now, g.arriving, g.leaving))
	}
	if only && g.only && !g.beta && a.Service == g.arriving {
		g.strays = append(g.strays, fmt.Sprintf("%s: one without the beta's cookie saw %s", now, g.arriving))
	}
	m.visits++
	m.version, m.seen[a.Service] = a.Service, true
}

// expect says what users may see from now on.
func (u *users) expect(leaving, arriving string, only bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.leaving, u.arriving, u.only = leaving, arriving, only
}

// versions waits until each user has come twice more, and counts who saw which version last.
func (g *group) versions(w *world) (of map[string]int) {
	w.Helper()
	count := func() (visits []int) {
		g.mu.Lock()
		defer g.mu.Unlock()
		of = map[string]int{}
		for _, m := range g.members {
			visits = append(visits, m.visits)
			of[m.version]++
		}
		return visits
	}
	before := count()
	w.eventually(func() error {
		for i, n := range count() {
			if n < before[i]+2 {
				return fmt.Errorf("user %d has come %d times, want %d", i, n, before[i]+2)
			}
		}
		return nil
	})
	return of
}

// all waits for two visits of each user, and fails the test unless all saw one version last.
func (g *group) all(w *world, version string) {
	w.Helper()
	if of := g.versions(w); of[version] != len(g.members) {
		w.Errorf("users (beta: %v) saw %v, want all %d to see %s", g.beta, of, len(g.members), version)
	}
}

// end stops the visits, of which none may have failed or gone astray.
func (u *users) end(t *testing.T) {
	t.Helper()
	u.stop()
	u.wait.Wait()
	if len(u.failures) > 0 {
		t.Errorf("%d requests failed, the first of them: %q", len(u.failures), u.failures[:min(10, len(u.failures))])
	}
	if len(u.strays) > 0 {
		t.Errorf("%d visits went astray, the first of them: %q", len(u.strays), u.strays[:min(10, len(u.strays))])
	}
}

// beta is a step for users with a cookie, wherever it stands among others.
const beta = `{replicas: 1, matches: [{headers: [{name: Cookie, type: RegularExpression, value: "(.*;\\s*)?beta=yes(;.*)?"}]}]}`

// sticky has the route's rule keep sessions, as if its user had written it so.
func (r *releases) sticky() {
	r.Helper()
	r.kubectl("", "patch", "httproute", "web", "--type=merge", "--patch",
		`{"spec":{"rules":[{"name":"all","sessionPersistence":{"sessionName":"shop-session"},"backendRefs":[{"name":"web","port":80,"weight":7}]}]}}`)
	r.before = r.written()
	r.eventually(func() error {
		response, err := http.Get(r.url)
		if err != nil {
			return err
		}
		response.Body.Close()
		for _, c := range response.Cookies() {
			if c.Name == "shop-session" {
				return nil
			}
		}
		return fmt.Errorf("the answer has the cookies %v", response.Cookies())
	})
}

// TestUsersStayWithTheirVersion releases a version by the cookie of a beta and then by shares, under load of users with cookies: who has seen
// the new version does not see the old one again, shares of first visits are exact, and no request fails. A rollback
// midway takes everybody back.
func TestUsersStayWithTheirVersion(t *testing.T) {
	if testing.Short() {
		t.Skip("for the full size")
	}
	t.Parallel()
	r := newReleases(newWorld(t), 4, strings.Join([]string{beta, `{traffic: 20%, replicas: 1}`, `{traffic: 50%, replicas: 50%}`, `{traffic: 100%, replicas: 100%}`}, ", "))
	r.sticky()
	u := startUsers(t, r.url)
	first, testers := u.join(t, 20, false), u.join(t, 4, true)

	for _, back := range []bool{true, false} {
		next := fmt.Sprintf("v%d", r.count+1)
		u.expect("v1", next, true)
		r.begin(1)
		testers.all(r.world, next)
		first.all(r.world, "v1")

		u.expect("v1", next, false)
		r.approve()
		r.phase("Progressing", 2)
		testers.all(r.world, next)
		first.all(r.world, "v1") // no pod of theirs is gone
		if got := r.shares(r.url, 50); got[next] < 9 || got[next] > 11 {
			t.Errorf("of first visits at 20 %%: %v", got)
		}

		r.approve()
		r.phase("Progressing", 3)
		testers.all(r.world, next)
		if got := r.shares(r.url, 50); got[next] < 24 || got[next] > 26 {
			t.Errorf("of first visits at 50 %%: %v", got)
		}
		late := u.join(t, 10, false)
		if of := late.versions(r.world); of[next] < 4 || of[next] > 6 {
			t.Errorf("of 10 new users at 50 %%: %v", of)
		}

		if back {
			u.expect("", "", false)
			r.release("v1")
			r.healthy("v1")
			for _, g := range []*group{first, late, testers} {
				g.all(r.world, "v1")
			}
			continue
		}
		r.approve() // the last step gives everything to the new version, and waits for nobody
		r.healthy(next)
		for _, g := range []*group{first, late, testers} {
			g.all(r.world, next)
		}
	}
	u.end(t)
}

// TestAReleaseForUsersWithACookie gives the new version to those with a cookie alone, of a route without sessions, and then to everybody before the last pods
// are replaced: nobody who has seen it sees the old one again.
func TestAReleaseForUsersWithACookie(t *testing.T) {
	if testing.Short() {
		t.Skip("with sessions it is shown")
	}
	t.Parallel()
	r := newReleases(newWorld(t), 2, beta+`, {traffic: 100%, replicas: 50%}, {traffic: 100%, replicas: 100%}`)
	u := startUsers(t, r.url)
	others, testers := u.join(t, 10, false), u.join(t, 4, true)
	u.expect("v1", "v2", true)
	r.begin(1)
	testers.all(r.world, "v2")
	others.all(r.world, "v1")
	u.expect("v1", "v2", false)
	r.approve()
	r.phase("Progressing", 2)
	testers.all(r.world, "v2")
	others.all(r.world, "v2")
	r.approve()
	r.healthy("v2")
	testers.all(r.world, "v2")
	others.all(r.world, "v2")
	u.end(t)
}
