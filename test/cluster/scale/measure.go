package scale

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	dialect "github.com/weirmesh/weir/internal/dialect/gateway"
)

// pollPause is the time between two requests that look for a change.
const pollPause = 2 * time.Millisecond

// errNotYet says that the proxy does not serve a change yet.
var errNotYet = errors.New("the proxy still serves what was before")

// ask sends the proxy one request and returns the endpoint that answered.
func (r *run) ask(ctx context.Context, host, path string) (netip.Addr, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d%s", listenPort, path), nil)
	if err != nil {
		return netip.Addr{}, err
	}
	request.Host = host
	response, err := r.http.Do(request)
	if err != nil {
		return netip.Addr{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<10))
	if err != nil {
		return netip.Addr{}, err
	}
	if response.StatusCode == http.StatusNotFound {
		return netip.Addr{}, errNotYet
	}
	address, _, err := net.SplitHostPort(string(text))
	if err != nil || response.StatusCode != http.StatusOK {
		return netip.Addr{}, fmt.Errorf("%s%s: %s: %s", host, path, response.Status, text)
	}
	return netip.ParseAddr(address)
}

// askAll sends a request to each route, and expects an answer of its own Service.
func (r *run) askAll(ctx context.Context) error {
	for i := range r.Routes {
		got, err := r.ask(ctx, routeHost(i), "/")
		if err != nil {
			return fmt.Errorf("route %d: %w", i, err)
		}
		if service := r.serviceOf(i); got.Less(endpoint(service, 0)) || endpoint(service, EndpointsOf-1).Less(got) {
			return fmt.Errorf("route %d: %s answered, which is no endpoint of Service %s", i, got, serviceName(service))
		}
		r.result.Served++
	}
	return nil
}

// readStart takes from the controller's log when the caches were synced and when the first configuration was published.
func (r *run) readStart() error {
	text, err := os.ReadFile(r.path("controller.log"))
	if err != nil {
		return err
	}
	at := map[string]time.Time{}
	for line := range bytes.Lines(text) {
		var entry struct {
			Time time.Time
			Msg  string
		}
		if json.Unmarshal(line, &entry) == nil && at[entry.Msg].IsZero() {
			at[entry.Msg] = entry.Time
		}
	}
	known, fed := at["the objects of the cluster are known"], at["feeding proxies"]
	if known.IsZero() || fed.IsZero() {
		return errors.New("the log does not say when the objects were known and proxies fed")
	}
	r.result.Sync, r.result.FirstPublished = known.Sub(r.controllerBegan).Seconds(), fed.Sub(known).Seconds()
	m, err := r.metrics(context.Background())
	if err != nil {
		return err
	}
	if n := m["weir_controller_translate_seconds_count"]; n > 0 {
		r.result.FirstTranslate = m["weir_controller_translate_seconds_sum"] / n
	}
	if n := m["weir_controller_publish_seconds_count"]; n > 0 {
		r.result.FirstPublish = m["weir_controller_publish_seconds_sum"] / n
	}
	return nil
}

// awaitStatuses waits until every route has a status.
func (r *run) awaitStatuses(ctx context.Context) error {
	err := r.await(ctx, "statuses", func() error {
		m, err := r.metrics(ctx)
		if n := m["weir_controller_status_writes_total"]; err == nil && n < float64(r.Routes) {
			err = fmt.Errorf("%.0f of %d are written", n, r.Routes)
		}
		return err
	})
	if err != nil {
		return err
	}
	return r.await(ctx, "statuses", func() error {
		r.result.StatusesWritten = time.Since(r.controllerBegan).Seconds() - r.result.Sync
		missing, err := r.withoutStatus(ctx)
		if err == nil && missing > 0 {
			err = fmt.Errorf("%d of %d routes have none", missing, r.Routes)
		}
		return err
	})
}

// withoutStatus counts the routes that are not accepted.
func (r *run) withoutStatus(ctx context.Context) (n int, err error) {
	routes := &gatewayv1.HTTPRouteList{}
	if err := r.api.List(ctx, routes); err != nil {
		return 0, err
	}
	for _, route := range routes.Items {
		p := route.Status.Parents
		if len(p) != 1 || string(p[0].ControllerName) != dialect.ControllerName || len(p[0].Conditions) == 0 || p[0].Conditions[0].Status != "True" {
			n++
		}
	}
	return n, nil
}

// change makes changes and waits until the proxy serves each of them. One makes a change and returns how to see that it is
// served. Kinds is how many kinds of changes, this one included, have to share the time that is left.
func (r *run) change(ctx context.Context, into *Changes, one func(context.Context, int) (func(context.Context) error, error), kinds int) error {
	into.Load = loadAverage()
	var end time.Time
	if r.Limit > 0 {
		end = time.Now().Add((r.Limit - time.Since(r.began)) / time.Duration(kinds))
	}
	began, err := r.readCost(ctx)
	if err != nil {
		return err
	}
	var wait sync.WaitGroup
	defer wait.Wait()
	if r.Profiles != "" {
		wait.Go(func() { r.profile(ctx, into.What) })
	}
	for i := range r.Changes {
		c, err := r.changeOne(ctx, i, one)
		if err != nil {
			return fmt.Errorf("change %d: %w", i, err)
		}
		into.All = append(into.All, c)
		if !end.IsZero() && time.Now().After(end) {
			r.say("time is up after %d of %d changes", len(into.All), r.Changes)
			break
		}
	}
	ended, err := r.readCost(ctx)
	into.Cost = ended.since(began, len(into.All))
	return err
}

func (r *run) changeOne(ctx context.Context, i int, one func(context.Context, int) (func(context.Context) error, error)) (Change, error) {
	sleep(ctx, r.Pause)
	before, err := r.sent(ctx)
	if err != nil {
		return Change{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, changeLimit)
	defer cancel()
	began := time.Now()
	served, err := one(ctx, i)
	if err != nil {
		return Change{}, err
	}
	written := time.Now()
	for err = served(ctx); errors.Is(err, errNotYet) && ctx.Err() == nil; err = served(ctx) {
		sleep(ctx, pollPause)
	}
	if err != nil {
		return Change{}, err
	}
	c := Change{Write: written.Sub(began).Seconds(), Served: time.Since(began).Seconds()}
	after, err := r.sent(ctx)
	c.Sent = Sent{after.Bytes - before.Bytes, after.Parts - before.Parts, after.Responses - before.Responses}
	return c, err
}

// changeRoute gives a route another hostname.
func (r *run) changeRoute(ctx context.Context, i int) (func(context.Context) error, error) {
	n := i * 7919 % r.Routes // a prime, so that they are all over
	route := &gatewayv1.HTTPRoute{}
	if err := r.api.Get(ctx, client.ObjectKey{Namespace: team(r.serviceOf(n)), Name: routeName(n)}, route); err != nil {
		return nil, err
	}
	host := fmt.Sprintf("changed-%d.example.com", i)
	route.Spec.Hostnames = []gatewayv1.Hostname{gatewayv1.Hostname(host)}
	return func(ctx context.Context) error {
		_, err := r.ask(ctx, host, "/")
		return err
	}, r.api.Update(ctx, route)
}

// changeEndpoint gives one of a Service's endpoints another address.
func (r *run) changeEndpoint(ctx context.Context, i int) (func(context.Context) error, error) {
	service := i * 7919 % r.Services
	slice := &discoveryv1.EndpointSlice{}
	if err := r.api.Get(ctx, client.ObjectKey{Namespace: team(service), Name: serviceName(service)}, slice); err != nil {
		return nil, err
	}
	r.fresh++
	address := fresh(r.fresh)
	slice.Endpoints[i%EndpointsOf].Addresses = []string{address.String()}
	host := ""
	for n := range r.Routes {
		if r.serviceOf(n) == service {
			host = routeHost(n) // the last one of the Service's: fewest were changed
		}
	}
	if host == "" {
		return nil, fmt.Errorf("no route leads to Service %s", serviceName(service))
	}
	return func(ctx context.Context) error {
		got, err := r.ask(ctx, host, "/")
		if err == nil && got != address {
			err = errNotYet
		}
		return err
	}, r.api.Update(ctx, slice)
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
