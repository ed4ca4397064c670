package agreement

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/resource/rules"
	"github.com/weirmesh/weir/test/cluster/apiserver"
	"github.com/weirmesh/weir/test/cluster/components"
)

func init() { resource.CheckRules(rules.Compile) }

const (
	root            = "../../.."
	definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
)

// server is shared by all tests; definitions are what it made of the definitions it was given, by file.
var (
	server      *apiserver.Server
	definitions map[string]*apiextensionsv1.CustomResourceDefinition
)

func TestMain(m *testing.M) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := run(ctx, m)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(ctx context.Context, m *testing.M) (code int, err error) {
	server, err = apiserver.Start(ctx, apiserver.Options{Cache: components.Cache{Log: os.Stderr}})
	if err != nil {
		return 1, err
	}
	defer func() {
		if stopErr := server.Stop(); err == nil {
			err = stopErr
		}
	}()
	stop, err := convertVersions(ctx)
	if err != nil {
		return 1, err
	}
	defer func() {
		if stopErr := stop(); err == nil {
			err = stopErr
		}
	}()
	if definitions, err = install(ctx); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// install creates all custom resource definitions and waits until each is served.
func install(ctx context.Context) (map[string]*apiextensionsv1.CustomResourceDefinition, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	names := make(map[string]string) // by document
	for _, pattern := range []string{"internal/resource/crds/*.yaml", "deploy/crds/*.yaml"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			for _, d := range split(file, string(text)) {
				if names[d.String()], err = create(ctx, d); err != nil {
					return nil, fmt.Errorf("%s: %w", d, err)
				}
			}
		}
	}
	installed := make(map[string]*apiextensionsv1.CustomResourceDefinition)
	for d, name := range names {
		crd, err := established(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d, err)
		}
		installed[d] = crd
	}
	return installed, nil
}

// create returns the name of the definition.
func create(ctx context.Context, d document) (string, error) {
	a, err := send(ctx, http.MethodPost, definitionsPath+"?fieldValidation=Strict", d.text)
	if err != nil {
		return "", err
	}
	if a.code != http.StatusCreated {
		return "", fmt.Errorf("%d %s", a.code, a.body)
	}
	if len(a.warnings) > 0 {
		return "", fmt.Errorf("the API server warns: %q", a.warnings)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := json.Unmarshal(a.body, &crd); err != nil {
		return "", err
	}
	return crd.Name, redirect(ctx, &crd)
}

// established waits until the definition is served and returns it.
func established(ctx context.Context, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	retry := time.NewTicker(100 * time.Millisecond)
	defer retry.Stop()
	for {
		answer, err := send(ctx, http.MethodGet, definitionsPath+"/"+name, "")
		if err != nil {
			return nil, err
		}
		crd := new(apiextensionsv1.CustomResourceDefinition)
		if err := json.Unmarshal(answer.body, crd); err != nil {
			return nil, err
		}
		ready := slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
			return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
		})
		if ready {
			ready, err = serves(ctx, crd)
		}
		if err != nil || ready {
			return crd, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("not served in time: %+v", crd.Status.Conditions)
		case <-retry.C:
		}
	}
}

// serves asks for a list: the handler comes a little later than the condition.
func serves(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) (bool, error) {
	for _, v := range crd.Spec.Versions {
		if !v.Served {
			continue
		}
		answer, err := send(ctx, http.MethodGet, fmt.Sprintf("/apis/%s/%s/%s", crd.Spec.Group, v.Name, crd.Spec.Names.Plural), "")
		if err != nil || answer.code != http.StatusOK {
			return false, err
		}
	}
	return true, nil
}

// answer is what the API server said.
type answer struct {
	code     int
	body     []byte
	warnings []string
}

func send(ctx context.Context, method, path, yaml string) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, method, server.URL+path, bytes.NewReader([]byte(yaml)))
	if err != nil {
		return answer{}, err
	}
	request.Header.Set("Accept", runtime.ContentTypeJSON)
	if yaml != "" {
		request.Header.Set("Content-Type", runtime.ContentTypeYAML)
	}
	response, err := server.Client().Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, body, warnings(response.Header)}, err
}
