package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	corev1 "k8s.io/api/core/v1"

	"github.com/weirmesh/weir/internal/dialect/tlsconfig"
	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/inject"
	"github.com/weirmesh/weir/internal/kube/infra"
	"github.com/weirmesh/weir/internal/kube/inspect"
	"github.com/weirmesh/weir/internal/process"
	"github.com/weirmesh/weir/internal/screen"
	"github.com/weirmesh/weir/internal/visible"
)

// maxManifests bounds what "weir inject" reads, in bytes.
const maxManifests = 64 << 20

func newInject(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "inject FILE...",
		Short: "Put sidecars into the pods of manifests",
		Long: `Inject prints manifests with a sidecar in each of their pods, as the controller's
webhook puts them there: in Pods, and in the templates of Deployments,
StatefulSets, DaemonSets, ReplicaSets, Jobs, CronJobs and the like. All else is
printed as it was. stderr says what was injected, and what was not and why, and
whether a TLSConfig among the manifests selects it. If something cannot be
injected as it is, nothing is printed.

In a cluster, label a namespace weirmesh.github.io/inject=enabled instead: then
pods are injected when they are created, and those of a newer release follow it.
The pods need the ConfigMap weir-ca in their namespace, which the controller
makes where pods are injected.`,
		Example: `  weir inject --image weir-proxy:v1 shop.yaml > injected.yaml
  kustomize build . | weir inject --image weir-proxy:v1 - | kubectl apply -f -`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return flags.Errorf("which files? Give at least one FILE, or - for the standard input")
			}
			return nil
		},
	}
	settings := inject.NewSettings()
	pull := flags.NewChoice("IfNotPresent", "Always", "Never")
	f := cmd.Flags()
	f.StringVar(&settings.Image, "image", "", "`image` of the sidecars: proxyImage.name of the chart")
	f.Var(&pull, "image-pull-policy", "when to pull it")
	f.StringVar(&settings.Namespace, "controller-namespace", inspect.DefaultNamespace, "`namespace` of the controller")
	f.StringVar(&settings.Controller, "controller", "", "`address` of the controller's feed, HOST:PORT (default: Service "+inspect.DefaultName+" of its namespace)")
	flags.TrustDomain(f, &settings.TrustDomain)
	settings.Flags(f)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		settings.PullPolicy, settings.Audience, settings.Version = corev1.PullPolicy(pull.Value), infra.Audience, process.Build().Version
		if settings.Image == "" {
			return flags.Errorf("which image do the sidecars run? Give --image")
		}
		if settings.Controller == "" {
			settings.Controller = inspect.DefaultName + "." + settings.Namespace + ".svc:18000"
		}
		if err := settings.Validate(); err != nil {
			return flags.Errorf("%w", err)
		}
		return injectFiles(s, settings, args)
	}
	return cmd
}

func injectFiles(s streams, settings *inject.Settings, files []string) error {
	var out bytes.Buffer
	counts := map[inject.Outcome]int{}
	var all []inject.Found
	configs := map[string][]map[string]any{} // TLSConfigs, by namespace
	for _, file := range files {
		text, err := manifests(file, s.in)
		if err != nil {
			return &exitError{exitUsage, err}
		}
		for i, document := range documents(text) {
			printed, tree, found, err := injectDocument(settings, document)
			if err != nil {
				return fmt.Errorf("%s: document %d: %w", file, i+1, err)
			}
			all = append(all, found...)
			addConfigs(configs, tree)
			if out.Len() > 0 {
				out.WriteString("---\n")
			}
			out.Write(printed)
		}
	}
	for i := range all {
		f := &all[i]
		counts[f.Outcome]++
		tellFound(s.err, f, tlsconfig.Selecting(configs[f.Namespace], f.Labels))
	}
	if n := counts[inject.Refused]; n > 0 {
		return fmt.Errorf("%s cannot be injected, so nothing was printed", screen.Count(n, "object"))
	}
	fmt.Fprintf(s.err, "weir: %s injected, %d not\n", screen.Count(counts[inject.Injected], "object"), counts[inject.Excluded]+counts[inject.OptedOut])
	_, err := s.out.Write(out.Bytes())
	return err
}

// addConfigs adds the TLSConfigs of an object, which may be a List, by namespace.
func addConfigs(to map[string][]map[string]any, tree map[string]any) {
	if items, ok := tree["items"].([]any); ok {
		for _, item := range items {
			if o, ok := item.(map[string]any); ok {
				addConfigs(to, o)
			}
		}
	}
	if c := tlsconfig.Manifest(tree); c != nil {
		metadata, _ := c["metadata"].(map[string]any)
		namespace, _ := metadata["namespace"].(string)
		to[namespace] = append(to[namespace], c)
	}
}

// tellFound says what became of an object's pods, which TLSConfigs of the manifests select.
func tellFound(w io.Writer, f *inject.Found, selecting []string) {
	selected := ""
	if len(selecting) > 0 {
		selected = "; TLSConfig " + selecting[0] + " selects it"
	}
	tell := func(text string) { fmt.Fprintf(w, "weir: %s\n", visible.Text(f.String()+": "+text)) }
	switch f.Outcome {
	case inject.Injected:
		tell("injected" + selected)
	case inject.OptedOut:
		tell(fmt.Sprintf("not injected: its label %s is %s", inject.Label, inject.Disabled) + selected)
	case inject.Excluded:
		tell("not injected: " + strings.Join(f.Reasons, "; ") + selected)
	default:
		for _, r := range f.Reasons {
			tell("cannot be injected: " + r)
		}
	}
	for _, n := range f.Notes {
		tell(n)
	}
}

// manifests is the content of a file.
func manifests(path string, stdin io.Reader) ([]byte, error) {
	in := stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		if info, err := f.Stat(); err == nil && info.IsDir() {
			return nil, fmt.Errorf("%s is a folder: name the files in it", path)
		}
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxManifests+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	case len(text) > maxManifests:
		return nil, fmt.Errorf("%s: it has more than %d MiB; name its parts one by one", path, maxManifests>>20)
	}
	return text, nil
}

// documents are the parts of a file of YAML, or the values of one of JSON. Those without content are left out.
func documents(text []byte) (out [][]byte) {
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	if values := jsonValues(text); values != nil {
		return values
	}
	var part []byte
	flush := func() {
		if hasContent(part) {
			out = append(out, part)
		}
		part = nil
	}
	for line := range bytes.Lines(text) {
		marked := len(line) >= 3 && (len(line) == 3 || strings.IndexByte(" \t\r\n", line[3]) >= 0)
		switch {
		case marked && string(line[:3]) == "---":
			flush()
			if rest := line[3:]; hasContent(rest) {
				part = append(part, rest...)
			}
		case marked && string(line[:3]) == "...":
			flush()
		default:
			part = append(part, line...)
		}
	}
	flush()
	return out
}

// jsonValues are the values of a text that is JSON; nil if it is something else.
func jsonValues(text []byte) (out [][]byte) {
	if !bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) {
		return nil
	}
	for d := json.NewDecoder(bytes.NewReader(text)); ; {
		var value json.RawMessage
		err := d.Decode(&value)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			return nil
		}
		out = append(out, append(value, '\n'))
	}
}

// hasContent reports whether a text has more than comments.
func hasContent(text []byte) bool {
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' && line[0] != '%' {
			return true
		}
	}
	return false
}

// injectDocument returns what is to be printed of a document: as it was written, if nothing in it is injected;
// and the document as it was read.
func injectDocument(settings *inject.Settings, document []byte) (printed []byte, tree map[string]any, found []inject.Found, err error) {
	text, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return nil, nil, nil, err
	}
	var value any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &value); err != nil {
		return nil, nil, nil, err
	}
	if value == nil {
		return nil, nil, nil, nil
	}
	tree, ok := value.(map[string]any)
	if !ok {
		return nil, nil, nil, errors.New("it is no object")
	}
	after, found, err := settings.Document(tree)
	if err != nil {
		return nil, nil, nil, err
	}
	changed := false
	for _, f := range found {
		changed = changed || f.Outcome == inject.Injected
	}
	if !changed && visible.Plain(document) {
		if !bytes.HasSuffix(document, []byte("\n")) {
			document = append(document, '\n')
		}
		return document, tree, found, nil
	}
	printed, err = marshalYAML(after)
	return printed, tree, found, err
}
