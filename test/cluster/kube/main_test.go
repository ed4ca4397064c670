package kube

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/kube"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/resource/rules"
	"github.com/weirmesh/weir/test/cluster/apiserver"
	"github.com/weirmesh/weir/test/cluster/components"
	"github.com/weirmesh/weir/test/cluster/process"
	"github.com/weirmesh/weir/test/weirtest"
)

func init() { resource.CheckRules(rules.Compile) }

const (
	root       = "../../.."
	controller = "weirmesh.github.io/gateway-controller"
	// enough is for what takes moments on an idle machine.
	enough = time.Minute
)

// kinds are those that Weir reads.
var kinds = dialect.Kinds()

// server is shared by all tests; admin is its administrator, who knows kinds that Weir does not read as objects.
var (
	server  *apiserver.Server
	admin   *kube.Client
	objects client.Client
)

func TestMain(m *testing.M) {
	weirtest.StandIn()
	flag.Parse()
	if flag.Lookup("test.list").Value.String() != "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	wait, err := sharded(ctx)
	code := 1
	if err == nil {
		code, err = run(ctx, m)
	}
	code = max(code, wait())
	stop()
	if err == nil {
		err = goleak.Find()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func run(ctx context.Context, m *testing.M) (code int, err error) {
	kube.SetLogger(slog.New(slog.DiscardHandler))
	server, err = apiserver.Start(ctx, apiserver.Options{Cache: components.Cache{Log: os.Stderr}})
	if err != nil {
		return 1, err
	}
	defer func() {
		if stopErr := server.Stop(); err == nil {
			err = stopErr
		}
	}()
	config, err := adminConfig()
	if err != nil {
		return 1, err
	}
	if admin, err = kube.NewClient(config); err != nil {
		return 1, err
	}
	defer admin.Close()
	scheme := kube.Scheme()
	if err := rbacv1.AddToScheme(scheme); err != nil {
		return 1, err
	}
	if objects, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return 1, err
	}
	files, err := filepath.Glob(filepath.Join(root, "internal/resource/crds/*.yaml"))
	if err != nil {
		return 1, err
	}
	for _, file := range files {
		if err := install(ctx, file, nil); err != nil {
			return 1, fmt.Errorf("%s: %w", file, err)
		}
	}
	return m.Run(), nil
}

func adminConfig() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", server.Kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	return config, nil
}

// install creates a definition, changed by edit if that is not nil, and waits until it is served.
func install(ctx context.Context, file string, edit func(*apiextensionsv1.CustomResourceDefinition)) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(text, crd); err != nil {
		return err
	}
	if edit != nil {
		edit(crd)
	}
	if err := admin.Create(ctx, crd); err != nil {
		return err
	}
	return within(ctx, func() error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(crd), crd); err != nil {
			return err
		}
		for _, c := range crd.Status.Conditions {
			if c.Type != apiextensionsv1.Established || c.Status != apiextensionsv1.ConditionTrue {
				continue
			}
			// What the API server tells of itself comes a little later.
			var served []string
			for _, v := range crd.Spec.Versions {
				if v.Served {
					served = append(served, v.Name)
				}
			}
			if _, err := admin.RESTMapper().RESTMappings(schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind}, served...); err != nil {
				return err
			}
			// The mapper may know the kind from a definition that is gone; everyone else asks anew.
			return discovered(ctx, crd.Spec.Group, served, crd.Spec.Names.Plural)
		}
		return fmt.Errorf("not established: %+v", crd.Status.Conditions)
	})
}

// discovered is nil when the API server tells of a resource, in each version, and serves it.
func discovered(ctx context.Context, group string, versions []string, plural string) error {
	ask := func(path, part string) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+path, nil)
		if err != nil {
			return err
		}
		request.Header.Set("Accept", "application/json")
		response, err := server.Client().Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err == nil && (response.StatusCode != http.StatusOK || !strings.Contains(string(text), part)) {
			err = fmt.Errorf("%s: %s without %s", path, response.Status, part)
		}
		return err
	}
	for _, v := range versions {
		at := "/apis/" + group + "/" + v
		err := errors.Join(ask("/apis", fmt.Sprintf("%q", group+"/"+v)), ask(at, fmt.Sprintf(`"name":%q`, plural)), ask(at+"/"+plural, "items"))
		if err != nil {
			return err
		}
	}
	return nil
}

// within tries until it succeeds, and fails with the last error when it has long been enough.
func within(ctx context.Context, try func() error) error {
	return process.Within(ctx, enough, try)
}
