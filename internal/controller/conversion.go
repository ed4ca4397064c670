package controller

import (
	"context"
	"net"
	"net/http"
	"net/url"

	"github.com/spf13/pflag"

	api "github.com/weirmesh/weir/api/metrics"
	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/kube/access"
	"github.com/weirmesh/weir/internal/kube/conversion"
	"github.com/weirmesh/weir/internal/kube/webhook"
	"github.com/weirmesh/weir/internal/process"
)

// conversionFlags say how the API server reaches the conversion webhook.
type conversionFlags struct {
	address, url string
}

func (c *conversionFlags) flags(f *pflag.FlagSet) {
	f.StringVar(&c.address, "conversion-address", ":18443", "`address` at which the API server has SMI objects converted between versions, or off; the Service has it at port 443")
	f.StringVar(&c.url, "conversion-url", "", "`URL` of that for the API server, of a controller outside the cluster: https://HOST:PORT"+conversion.Path)
}

func (c *conversionFlags) on() bool { return c.address != "off" }

func (c *conversionFlags) check() error {
	if _, _, err := net.SplitHostPort(c.address); c.on() && err != nil {
		return flags.Errorf("--conversion-address %q: %w", c.address, err)
	}
	if c.url == "" {
		return nil
	}
	u, err := url.Parse(c.url)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.Path != conversion.Path || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return flags.Errorf("--conversion-url %q: must be https://HOST:PORT%s", c.url, conversion.Path)
	}
	return nil
}

// hosts are the names by which the webhook is reached besides the Service's.
func (c *conversionFlags) hosts() []string {
	if u, err := url.Parse(c.url); c.url != "" && err == nil {
		return []string{u.Hostname()}
	}
	return nil
}

// bundles tell the API server where the webhook is.
func (c *controlPlane) bundles() *webhook.Bundles {
	b := &webhook.Bundles{
		Client: c.client, Path: conversion.Path, URL: c.conversion.url, Service: webhook.Service{Namespace: c.namespace, Name: c.service},
		Bundle: c.authority.Bundle, Logger: c.log,
	}
	for _, k := range c.kinds().Conversions() {
		b.Definitions = append(b.Definitions, k.Definition())
	}
	if c.traffic != nil {
		b.APIServices = api.AllAPIServices()
	}
	if c.judges() {
		b.Configurations = []webhook.Configuration{{Kind: "ValidatingWebhookConfiguration", Name: access.RolloutsWebhook}, {Kind: "MutatingWebhookConfiguration", Name: access.WorkloadsWebhook}}
	}
	if c.injects() {
		b.Configurations = append(b.Configurations, webhook.Configuration{Kind: "MutatingWebhookConfiguration", Name: access.SidecarsWebhook}, webhook.Configuration{Kind: "ValidatingWebhookConfiguration", Name: access.SidecarsWebhook})
	}
	return b
}

// keepBundles is the task that tells the API server where the webhook is.
func (c *controlPlane) keepBundles(ctx context.Context) error {
	c.bundles().Run(ctx, c.rebundled)
	return nil
}

// webhooks answers API servers: those that have objects converted or judged, and those that ask about traffic for others.
func (c *controlPlane) webhooks() http.Handler {
	if c.traffic == nil {
		return c.reviews
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.reviews.Paths[r.URL.Path] != nil {
			c.reviews.ServeHTTP(w, r)
			return
		}
		c.traffic.api.ServeHTTP(w, r)
	})
}

// serveConversions answers API servers, which leave for another replica when asked ends.
func (c *controlPlane) serveConversions(ctx, asked context.Context, s *socket) error {
	l, err := s.listen()
	if err != nil {
		return err
	}
	c.log.Info("converting versions of SMI objects", "address", l.Addr().String())
	c.converting.Store(true)
	defer c.converting.Store(false)
	return webhook.Serve(ctx, process.Bounded(l), webhook.Leaving(asked, c.webhooks()), c.authority.Certificate)
}

// conversionsReady says whether API servers may rely on this replica.
func (c *controlPlane) conversionsReady() (ok bool, why string) {
	if !c.converting.Load() {
		return false, "no certificate yet"
	}
	return true, ""
}
