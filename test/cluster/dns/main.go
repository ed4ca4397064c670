// Command coredns is CoreDNS with the plugins that a test cluster's DNS needs, and no others: the whole one depends on the
// clients of several clouds.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
)

func init() { dnsserver.Directives = []string{"health", "ready", "errors", "kubernetes"} }

func main() { coremain.Run() }
