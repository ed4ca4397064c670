package rollouts

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/internal/kube"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/resource/rules"
	"github.com/weirmesh/weir/test/cluster/apiserver"
	"github.com/weirmesh/weir/test/cluster/components"
	"github.com/weirmesh/weir/test/cluster/process"
	"github.com/weirmesh/weir/test/weirtest"
)

func init() { resource.CheckRules(rules.Compile) }

// enough is for what takes moments on an idle machine.
const enough = time.Minute

// server is shared by all tests; admin is its administrator.
var (
	server *apiserver.Server
	admin  *kube.Client
)

func TestMain(m *testing.M) {
	weirtest.StandIn()
	if os.Getenv(carrierFor) != "" {
		if err := carrier(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	if flag.Lookup("test.list").Value.String() != "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := run(ctx, m)
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
	cache := components.Cache{Log: os.Stderr}
	programs, err := cache.Ensure(ctx, components.ControllerManager)
	if err != nil {
		return 1, err
	}
	dir, err := os.MkdirTemp("", "weir-rollouts-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	if server, err = apiserver.Start(ctx, apiserver.Options{Cache: cache}); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	if admin, err = kube.NewClient(config()); err != nil {
		return 1, err
	}
	defer admin.Close()
	files, err := filepath.Glob("../../../internal/resource/crds/*.yaml")
	if err != nil {
		return 1, err
	}
	for _, file := range append(files, "../../../deploy/crds/rollouts.kruise.io_rollouts.yaml") {
		if err := install(ctx, file); err != nil {
			return 1, fmt.Errorf("%s: %w", file, err)
		}
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}
	if err := admin.Create(ctx, node); err != nil {
		return 1, err
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if err := admin.Status().Update(ctx, node); err != nil {
		return 1, err
	}
	// It has all rights, as there are no service accounts whose it could have.
	manager, err := process.StartIn(process.Roomy, filepath.Join(dir, "controller-manager.log"), programs.Path(components.ControllerManager),
		"--kubeconfig="+server.Kubeconfig, "--leader-elect=false", "--secure-port=0", "--kube-api-qps=1000", "--kube-api-burst=2000",
		"--controllers=deployment-controller,replicaset-controller,statefulset-controller,daemonset-controller,endpointslice-controller,garbage-collector-controller,disruption-controller")
	if err != nil {
		return 1, err
	}
	defer manager.Stop(5 * time.Second)
	nodes, err := startKubelet(ctx)
	if err != nil {
		return 1, err
	}
	defer nodes.stop()
	code = m.Run()
	if code != 0 {
		fmt.Fprintf(os.Stderr, "the end of the controller manager's log:\n%s\n", manager.Tail())
	}
	select {
	case <-manager.Done():
		return code, manager.Failure()
	default:
		return code, nil
	}
}

func config() *rest.Config {
	config, err := clientcmd.BuildConfigFromFlags("", server.Kubeconfig)
	if err != nil {
		panic(err) // it has just been written
	}
	config.QPS = -1
	return config
}

// install creates a definition, without conversion, and waits until it is served.
func install(ctx context.Context, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(text, crd); err != nil {
		return err
	}
	crd.Spec.Conversion = nil
	if err := admin.Create(ctx, crd); err != nil {
		return err
	}
	return within(ctx, func() error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(crd), crd); err != nil {
			return err
		}
		for _, c := range crd.Status.Conditions {
			if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
				kinds, err := admin.Serves(ctx, crd.Spec.Group)
				if err == nil && !kinds[crd.Spec.Names.Kind] {
					err = errors.New("it is not told of yet")
				}
				return err
			}
		}
		return fmt.Errorf("not established: %+v", crd.Status.Conditions)
	})
}

func within(ctx context.Context, try func() error) error { return process.Within(ctx, enough, try) }
