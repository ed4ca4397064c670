package cli

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/weirmesh/weir/api/access"
	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/openapi"
	"github.com/weirmesh/weir/internal/screen"
	"github.com/weirmesh/weir/internal/visible"
)

func newAccessGenerate(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "generate PATH",
		Short: "Make TrafficRoles of an OpenAPI document",
		Long: `Generate reads an OpenAPI document (Swagger 2.0, OpenAPI 3.0 to 3.2; YAML or
JSON) and prints TrafficRoles that allow what it documents: one for all
operations, and one for each tag, or with --by scope one for each scope that
requests need. Each rule has the methods of a path and a regular expression for
the whole path, in which parameters have the form that their schemas say.

Nobody has the roles until they are bound; --bind does that too. Without a tag
or scope, a subject gets the role for all operations.

What the roles cannot say as the document does is told on stderr. Operations
without a usable path are left out; the exit code is 1 then. No other file and
no network is read: references to other documents are not followed.
docs/openapi.md says how each part is mapped.`,
		Example: `  weir access generate openapi.yaml --service shop > roles.yaml
  curl -s http://127.0.0.1:8080/openapi.json | weir access generate - --service shop
  weir access generate openapi.yaml --service shop -n prod --bind web --bind admin=Deployment/office`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return flags.Errorf("which document? Give one PATH, or - for the standard input")
			}
			return nil
		},
	}
	service := cmd.Flags().String("service", "", "the `name` of the Service that serves the requests")
	res := cmd.Flags().String("resource", "", "what serves the requests, as `KIND/NAME`, instead of a Service")
	namespace := cmd.Flags().StringP("namespace", "n", "", "the `namespace` to write into the objects")
	by := flags.NewChoice(string(openapi.ByTag), string(openapi.ByScope), string(openapi.ByNone))
	cmd.Flags().Var(&by, "by", "what there is a role for, beside the one for all operations")
	bases := cmd.Flags().StringArray("base-path", nil, "the `path` that requests have before those of the document, instead of those of its servers; may be repeated")
	bind := cmd.Flags().StringArray("bind", nil, "bind a role to a `subject`: [TAG=][KIND/[NAMESPACE/]]NAME, with a scope instead of a tag by --by scope; the kind is ServiceAccount by default; may be repeated")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o := openapi.Options{By: openapi.Grouping(by.Value), Namespace: *namespace}
		var err error
		if o.Resource, err = accessResource(*service, *res); err != nil {
			return err
		}
		if wrong := validation.IsDNS1123Label(*namespace); *namespace != "" && len(wrong) > 0 {
			return flags.Errorf("--namespace: %q is no namespace: %s", *namespace, wrong[0])
		}
		if cmd.Flags().Changed("base-path") {
			o.BasePaths = *bases
			for _, p := range o.BasePaths {
				if !strings.HasPrefix(p, "/") {
					return flags.Errorf("--base-path: %q does not begin with a slash", p)
				}
			}
		}
		for _, text := range *bind {
			b, err := bindOf(text)
			if err != nil {
				return err
			}
			o.Bind = append(o.Bind, b)
		}
		document, err := readDocument(args[0], s.in)
		if err != nil {
			return &exitError{exitUsage, err}
		}
		r, err := openapi.Generate(document, o)
		if err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
		if _, err := s.out.Write(r.YAML()); err != nil {
			return err
		}
		for _, n := range r.Notes {
			fmt.Fprintln(s.err, "weir: "+n.String())
		}
		fmt.Fprintf(s.err, "weir: %s from %s, %s\n", screen.Count(len(r.Roles), "role"), screen.Count(r.Operations, "operation"), screen.Count(len(r.Notes), "note"))
		if r.LeftOut > 0 {
			return &exitError{code: exitFailed}
		}
		return nil
	}
	return cmd
}

// accessResource is what the roles are for.
func accessResource(service, res string) (access.Resource, error) {
	kind, name := access.Service, service
	switch {
	case service != "" && res != "":
		return access.Resource{}, flags.Errorf("--service and --resource: give one of them")
	case res != "":
		spelling, n, ok := strings.Cut(res, "/")
		kind, name = "", n
		if k, known := access.ResourceKind(spelling); ok && known && k != access.AnyKind {
			kind = k
		}
		if kind == "" {
			return access.Resource{}, flags.Errorf("--resource: %q is no KIND/NAME, with Service, Pod or a kind that runs pods, such as Deployment/shop", res)
		}
	case service == "":
		return access.Resource{}, flags.Errorf("who serves the requests? Give --service NAME, or --resource KIND/NAME")
	}
	if wrong := validation.IsDNS1123Subdomain(name); len(wrong) > 0 {
		return access.Resource{}, flags.Errorf("%q is no name of an object: %s", name, wrong[0])
	}
	return access.Resource{Kind: kind, Name: name}, nil
}

// bindOf reads [TAG=][KIND/[NAMESPACE/]]NAME.
func bindOf(text string) (b openapi.Bind, err error) {
	subject := text
	if i := strings.LastIndexByte(text, '='); i >= 0 {
		if b.To, subject = text[:i], text[i+1:]; b.To == "" {
			return b, flags.Errorf("--bind: %q names no tag or scope before the =", text)
		}
	}
	parts := strings.Split(subject, "/")
	b.Subject = access.Subject{Kind: access.ServiceAccount, Name: parts[len(parts)-1]}
	if len(parts) > 3 {
		return b, flags.Errorf("--bind: %q is no [KIND/[NAMESPACE/]]NAME", subject)
	}
	if len(parts) > 1 {
		kind, ok := access.SubjectKind(parts[0])
		if !ok || kind == access.AnyKind {
			return b, flags.Errorf("--bind: %q is no kind of a subject; it is ServiceAccount, Node, Pod or a kind that runs pods, such as Deployment/web", parts[0])
		}
		b.Subject.Kind = kind
	}
	if len(parts) == 3 {
		b.Subject.Namespace = parts[1]
		if wrong := validation.IsDNS1123Label(parts[1]); len(wrong) > 0 || b.Subject.Kind == access.Node {
			return b, flags.Errorf("--bind: %q is no namespace of a %s", parts[1], b.Subject.Kind)
		}
	}
	if wrong := validation.IsDNS1123Subdomain(b.Subject.Name); len(wrong) > 0 {
		return b, flags.Errorf("--bind: %q is no name of an object: %s", b.Subject.Name, wrong[0])
	}
	return b, nil
}

// readDocument reads a file, or stdin, up to a byte more than a document may have.
func readDocument(path string, stdin io.Reader) ([]byte, error) {
	in := stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	document, err := io.ReadAll(io.LimitReader(in, openapi.MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", visible.Text(path), err)
	}
	return document, nil
}
