package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// clusterPeriod is how often a cluster is asked by who watches. It is how often the controller reads proxies.
const clusterPeriod = 5 * time.Second

// ask reads the answer of the API server about a path.
func (a *trafficAPI) ask(ctx context.Context, path string, query url.Values) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(a.client.Config.Timeout, answerTime))
	defer cancel()
	resp, err := a.client.Ask(ctx, path, query)
	if fault := (*url.Error)(nil); errors.As(err, &fault) {
		return nil, fmt.Errorf("the API server %s does not answer: %w", a.client.Config.Host, fault.Err)
	}
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return readAnswer(resp, resp.Request.URL.Host)
}

// refusalOfCluster is the error that an answer of the API server is. Without a Status, it is the API server's own answer
// about an API that it does not have, or does not reach.
func refusalOfCluster(resp *answer) error {
	if err := statusError(resp); err != nil {
		return err
	}
	switch resp.status {
	case http.StatusNotFound:
		return fmt.Errorf("the cluster has no Traffic Metrics (%s): install Weir's chart there, with traffic.enabled and traffic.apiService", trafficVersion)
	case http.StatusServiceUnavailable:
		return fmt.Errorf("the API server reaches no controller that serves Traffic Metrics (%s): \"kubectl get apiservices\" says why", resp.text())
	}
	return fmt.Errorf("the API server %s answers %d: %s", resp.host, resp.status, resp.text())
}
