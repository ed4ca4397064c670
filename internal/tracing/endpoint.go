package tracing

import (
	"errors"
	"net/url"
)

// Endpoint returns the URL to which traces are sent, of what a user wrote for a collector: an http or https URL without
// user, query and fragment; without a path it is /v1/traces, OTLP's own. The error does not show what was written, which
// may have a password.
func Endpoint(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", errors.New("want a URL such as http://collector:4318")
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/traces"
	}
	return u.String(), nil
}
