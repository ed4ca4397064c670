package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirmesh/weir/internal/control"
	dialect "github.com/weirmesh/weir/internal/dialect/gateway"
	"github.com/weirmesh/weir/internal/kube"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// loadTimeout bounds how long reading a cluster may take.
const loadTimeout = time.Minute

// input is what a command looks at: files and folders or, without any, a cluster.
type input struct {
	kube    kubeFlags
	options *control.Options
}

// inputFlags adds the flags that say what to look at, and how files are to be understood.
func inputFlags(cmd *cobra.Command) *input {
	i := &input{options: translation(cmd)}
	i.kube.flags(cmd.Flags())
	return i
}

// read is everything that the paths or the cluster hold, and what it means.
type read struct {
	set    *resource.Set
	result control.Result
	// cluster is where it was read; nil for files.
	cluster *kube.Client
}

// load reads once and translates. Without paths it reads the cluster.
func (i *input) load(ctx context.Context, paths []string, stdin io.Reader) (read, error) {
	if len(paths) > 0 {
		set, err := resource.Load(paths, stdin)
		if err != nil {
			return read{}, &exitError{exitUsage, err}
		}
		result, err := i.options.Translate(set)
		return read{set: set, result: result}, err
	}
	client, err := i.kube.client()
	if err != nil {
		return read{}, usageError("%w; give at least one PATH to look at files instead, or --kubeconfig", err)
	}
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	set, err := kube.Load(ctx, client, dialect.ControllerName)
	if err != nil {
		return read{}, fmt.Errorf("the cluster at %s cannot be read: %w", client.Config.Host, err)
	}
	result, err := clusterTranslation.Translate(set)
	return read{set: set, result: result, cluster: client}, err
}

// clusterTranslation is how the controller understands a cluster: each Gateway has proxies of its own, and nothing is served without one.
var clusterTranslation = control.Options{Separate: true, Serve: []string{"none"}}

// gatewayFlag adds the flag that picks one Gateway of a cluster.
func gatewayFlag(cmd *cobra.Command) *string {
	return cmd.Flags().String("gateway", "", "`namespace/name` of the Gateway of the cluster to look at alone")
}

// of returns what the proxies of one Gateway of a cluster are given.
func (r read) of(gateway string) (*model.Config, error) {
	if r.cluster == nil {
		return nil, usageError("--gateway is for clusters: all Gateways in files are served together")
	}
	gateways := r.result.Config.Gateways()
	if !slices.Contains(gateways, gateway) {
		return nil, usageError("--gateway %q: no Gateway of that name is served; there is: %s", gateway, cmpOr(join(gateways, ", "), "none"))
	}
	return r.result.Config.Of(gateway), nil
}

// explain asks the Gateway, if there is a name, or else the only one that takes the request, if there are several.
func (r read) explain(gateway string, request *clientRequest) (*explanation, error) {
	if gateway != "" {
		cfg, err := r.of(gateway)
		if err != nil {
			return nil, err
		}
		return explain(cfg, request)
	}
	if r.cluster == nil {
		return explain(r.result.Config, request)
	}
	var taken *explanation
	var takers []string
	parts := r.result.Config.Split()
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		e, err := explain(parts[name], request)
		if err != nil {
			return nil, err
		}
		if taken == nil || e.matched() && len(takers) == 0 {
			taken = e
		}
		if e.matched() {
			takers = append(takers, name)
		}
	}
	switch {
	case taken == nil:
		return explain(&model.Config{}, request)
	case len(takers) > 1:
		return nil, usageError("several Gateways take this request: %s; say which by --gateway", join(takers, ", "))
	}
	return taken, nil
}
