package controller

import (
	"github.com/spf13/pflag"

	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/metrics/prometheus"
)

// trafficFlags say whether Traffic Metrics are served, and from where.
type trafficFlags struct {
	on         bool
	prometheus prometheus.Options
}

func (o *trafficFlags) flags(f *pflag.FlagSet) {
	f.BoolVar(&o.on, "traffic-metrics", false, "answer the API server about Traffic Metrics, at --conversion-address")
	f.StringVar(&o.prometheus.URL, "prometheus", "", "`URL` of a Prometheus that scrapes the proxies, to ask about traffic instead of the proxies themselves")
	f.StringVar(&o.prometheus.TokenFile, "prometheus-token-file", "", "`file` with the token for that Prometheus")
	f.StringVar(&o.prometheus.CAFile, "prometheus-ca-file", "", "`file` with the certificates that sign its, in PEM (default: the system's)")
	f.StringVar(&o.prometheus.Tenant, "prometheus-tenant", "", "`name` of the tenant to ask about, as Mimir wants it")
}

func (o *trafficFlags) check(served bool) error {
	switch {
	case !o.on && o.prometheus.URL != "":
		return flags.Errorf("--prometheus: is for --traffic-metrics, which is off")
	case o.on && !served:
		return flags.Errorf("--traffic-metrics: is served at --conversion-address, which is off")
	case o.prometheus.URL == "" && (o.prometheus.TokenFile != "" || o.prometheus.CAFile != "" || o.prometheus.Tenant != ""):
		return flags.Errorf("--prometheus-token-file, --prometheus-ca-file and --prometheus-tenant are for --prometheus")
	}
	return nil
}
