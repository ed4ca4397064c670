package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirmesh/weir/internal/dialect/access"
	"github.com/weirmesh/weir/internal/dialect/tlsconfig"
	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/identity/claim"
	"github.com/weirmesh/weir/internal/identity/folder"
	"github.com/weirmesh/weir/internal/process"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/screen"
	"github.com/weirmesh/weir/internal/visible"
	"github.com/weirmesh/weir/internal/workload"
)

func newIdentity(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "identity FOLDER [PATH...]",
		Short: "Make a trust domain in a folder, with certificates of pods, for trying things out",
		Long: `Identity keeps a trust domain in a folder: an authority, made at the first call,
and for each pod in the files a certificate with its key, by which it proves its
SPIFFE ID, its name and what runs it. It has the names of the pod's Services,
and those that TLSConfigs give it. "weir run --as NAMESPACE/POD --identity
FOLDER" serves with it; "curl --cert FOLDER/NAMESPACE/POD.pem" calls with it.
Another call renews all certificates: running processes use them at once. What
runs pods and has none in the files (a Deployment, say) gets one as if it were
a pod of its own name.

Who can read the folder can be anybody in the trust domain. In a cluster Weir
issues identities itself, and their keys never leave the pods.`,
		Example: `  weir identity trust/ shop.yaml
  weir identity trust/ --node worker-1 --life 1h shop.yaml`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return flags.Errorf("which folder? Name the one in which the trust domain is, or is to be")
			}
			return nil
		},
	}
	var o identityOptions
	f := cmd.Flags()
	f.StringVar(&o.domain, "trust-domain", "", "`name` of the trust domain (default: the one that is there, or "+access.DefaultTrustDomain+")")
	f.DurationVar(&o.life, "life", 24*time.Hour, "how long the certificates are good")
	f.StringArrayVar(&o.nodes, "node", nil, "`name` of a node that gets a certificate, too; may be repeated")
	f.Var(tlsconfig.NewFlag(&o.grants), tlsconfig.FlagName, tlsconfig.FlagUsage)
	output := outputFlag(cmd, "text", "json")
	cmd.RunE = func(_ *cobra.Command, args []string) error { return o.run(s, args[0], args[1:], output.Value) }
	return cmd
}

type identityOptions struct {
	domain string
	life   time.Duration
	nodes  []string
	grants []tlsconfig.Grant
}

// issued is a certificate that was made.
type issued struct {
	Workload string    `json:"workload"`
	ID       string    `json:"id"`
	File     string    `json:"file"`
	Expires  time.Time `json:"expires"`
}

func (o *identityOptions) run(s streams, path string, paths []string, output string) error {
	if o.life < time.Minute || o.life > 365*24*time.Hour {
		return flags.Errorf("--life %v: want one minute to a year", o.life)
	}
	now := time.Now()
	f, err := folder.Make(path, o.domain, access.DefaultTrustDomain, now)
	if err != nil {
		return err
	}
	all := []issued{}
	if len(paths) > 0 {
		set, err := resource.Load(s.dialects.Kinds(), paths, s.in)
		if err != nil {
			return &exitError{exitUsage, err}
		}
		configs := tlsconfig.NewIndex(set, o.grants)
		for _, p := range workload.Of(set) {
			file, id, err := f.Pod(podOf(set, configs, &p), o.life, now)
			if err != nil {
				return fmt.Errorf("%s %s/%s: %w", p.Kind, p.Namespace, p.Name, err)
			}
			all = append(all, issued{p.Kind + " " + p.Namespace + "/" + p.Name, id.String(), file, now.Add(o.life).UTC().Truncate(time.Second)})
		}
		_, _, found := tlsconfig.Translate(set, tlsconfig.Options{Grants: o.grants})
		for _, p := range found {
			if p.Severity == resource.Error { // names that certificates lack
				fmt.Fprintln(s.err, visible.Text("weir: "+p.String()))
			}
		}
		if len(all) == 0 {
			return fmt.Errorf("%s: there are no pods, and nothing that runs any", strings.Join(paths, ", "))
		}
	}
	for _, name := range o.nodes {
		file, id, err := f.Node(name, o.life, now)
		if err != nil {
			return err
		}
		all = append(all, issued{"Node " + name, id.String(), file, now.Add(o.life).UTC().Truncate(time.Second)})
	}
	if output == "json" {
		return process.WriteJSON(s.out, map[string]any{"trustDomain": f.Domain, "certificates": all})
	}
	fmt.Fprintf(s.out, "trust domain %s in %s\n", f.Domain, path)
	if len(all) == 0 {
		return nil
	}
	rows := [][]string{{"WORKLOAD", "ID", "FILE", "EXPIRES"}}
	for _, i := range all {
		rows = append(rows, []string{i.Workload, i.ID, i.File, i.Expires.Format(time.RFC3339)})
	}
	fmt.Fprintf(s.out, "\n%s", screen.Of(s.out).Table(rows, "EXPIRES"))
	return nil
}

// podOf is who gets a certificate, with the names of the Services that lead to it and those of the TLSConfigs that select it,
// by which clients that know no SPIFFE may check it.
func podOf(set *resource.Set, configs *tlsconfig.Index, p *workload.Pods) folder.Pod {
	out := folder.Pod{Namespace: p.Namespace, Name: p.Name, Account: p.Account}
	for _, o := range p.Owners {
		out.Owners = append(out.Owners, claim.Owner{Kind: o.Kind, Name: o.Name})
	}
	for _, s := range set.Services {
		if p.SelectedBy(s) {
			out.DNSNames = append(out.DNSNames, s.Name+"."+s.Namespace+".svc", s.Name+"."+s.Namespace)
		}
	}
	out.DNSNames = append(out.DNSNames, configs.Of(p.Namespace, p.PodLabels).Names...)
	slices.Sort(out.DNSNames)
	out.DNSNames = slices.Compact(out.DNSNames)
	return out
}
