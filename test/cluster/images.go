package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/weirmesh/weir/test/cluster/components"
	"github.com/weirmesh/weir/test/cluster/image"
	"github.com/weirmesh/weir/test/cluster/node"
)

// The images that are built here; any other is a file.
const (
	weirImage        = "weir"        // Weir of this tree, under the name weirName, and its proxy alone, under proxyName
	conformanceImage = "conformance" // what the Gateway API's conformance suite runs pods of
	meshImage        = "mesh"        // what its tests of meshes run pods of
	flaggerImage     = "flagger"     // Flagger's and Argo Rollouts' controllers, with ":dev"
	argoImage        = "argo-rollouts"

	weirName   = "weir:dev"
	proxyName  = "weir-proxy:dev"
	callerName = "caller:dev" // services and a client for tests, beside Weir
	inpodName  = "inpod:dev"  // ways around access control, and what judges them
	echoName   = "echo-basic:dev"

	advancedName = "echo-advanced:dev"
)

// builder builds images into a folder of their own for each tree, as several may be used at once.
type builder struct {
	source string // the folder of this module
	dir    string
}

func newBuilder() (*builder, error) {
	source, err := source()
	if err != nil {
		return nil, err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	tree := fnv.New32a()
	tree.Write([]byte(source))
	return &builder{source: source, dir: filepath.Join(cache, "weir", "clusters", fmt.Sprintf("images-%x", tree.Sum32()))}, nil
}

// build the images that a node cannot do without and those that are named, and return all files.
func (b *builder) build(ctx context.Context, named []string, node bool) (files []string, err error) {
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return nil, err
	}
	unlock, err := components.Lock(ctx, filepath.Join(b.dir, "lock"), func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) })
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := b.tidy(time.Now()); err != nil {
		fmt.Fprintln(os.Stderr, "images that nobody uses are still there:", err)
	}
	programs, err := b.programs(ctx, slices.Contains(named, conformanceImage), node)
	if err != nil {
		return nil, err
	}
	if slices.Contains(named, weirImage) {
		programs = append(programs, image.Program{Dir: b.source, Package: "./caller", Tags: []string{callerName}},
			image.Program{Dir: filepath.Join(b.source, "../.."), Package: "./test/access/inpod", Tags: []string{inpodName}})
	}
	if slices.Contains(named, meshImage) {
		program, err := b.mesh(ctx)
		if err != nil {
			return nil, err
		}
		programs = append(programs, program)
	}
	others, err := driverPrograms(ctx, named)
	if err != nil {
		return nil, err
	}
	if files, err = image.Build(ctx, b.dir, append(programs, others...)...); err != nil {
		return nil, err
	}
	for _, name := range named {
		switch name {
		case conformanceImage, meshImage, flaggerImage, argoImage:
		case weirImage:
			for _, name := range []string{weirName, proxyName} {
				file, err := b.weir(ctx, name)
				if err != nil {
					return nil, fmt.Errorf("image %s: %w", name, err)
				}
				files = append(files, file)
			}
		default:
			file, err := filepath.Abs(name)
			if err != nil {
				return nil, err
			}
			files = append(files, file)
		}
	}
	return files, nil
}

// programs of the node and of the conformance suite.
func (b *builder) programs(ctx context.Context, conformance, onNode bool) ([]image.Program, error) {
	dns := image.Program{Dir: filepath.Join(b.source, "dns"), Package: ".", Tags: []string{node.CoreDNS}}
	echo := image.Program{
		Dir: filepath.Join(b.source, "../conformance"), Package: suite + "/echo-basic", Tags: []string{echoName},
	}
	var programs []image.Program
	if conformance {
		names, err := suiteImages(ctx, echo.Dir)
		if err != nil {
			return nil, err
		}
		echo.Tags = append(echo.Tags, names["echo-basic"]...)
		dns.Tags = append(dns.Tags, names["coredns"]...)
		programs = append(programs, echo)
	}
	if onNode {
		programs = append(programs, image.Program{Dir: b.source, Package: "./pause", Tags: []string{node.Pause}})
	}
	if onNode || conformance {
		programs = append(programs, dns)
	}
	return programs, nil
}

// mesh is the application of the conformance suite's tests of meshes. It has a certificate for its own TLS.
func (b *builder) mesh(ctx context.Context) (image.Program, error) {
	const commands = "istio.io/istio/pkg/test/echo/cmd/"
	names, err := suiteImages(ctx, filepath.Join(b.source, "../conformance"))
	if err != nil {
		return image.Program{}, err
	}
	certificate, key, err := selfSigned()
	return image.Program{
		Dir: filepath.Join(b.source, "../echo"), Package: commands + "server", Also: []string{commands + "client"}, Tags: append([]string{advancedName}, names["echo-advanced"]...),
		Files: map[string][]byte{"cert.crt": certificate, "cert.key": key},
	}, err
}

// selfSigned is a certificate that nobody checks, the same each time, so that the image is.
func selfSigned() (certificate, key []byte, err error) {
	private := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "echo"}, DNSNames: []string{"echo"}, NotAfter: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)}
	der, err := x509.CreateCertificate(nil, template, template, private.Public(), private)
	if err != nil {
		return nil, nil, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), err
}

// suite is the module of the Gateway API's conformance tests.
const suite = "sigs.k8s.io/gateway-api/conformance"

var imageField = regexp.MustCompile(`(?m)^\s*(?:- )?image: "?([^\s"]+/([a-z0-9-]+):[^\s"]+)"?\s*$`)

// suiteImages are the names that the suite's manifests have for images, by the last part of their path.
func suiteImages(ctx context.Context, module string) (map[string][]string, error) {
	if _, err := output(ctx, module, nil, "go", "mod", "download", suite); err != nil {
		return nil, err
	}
	dir, err := output(ctx, module, nil, "go", "list", "-m", "-f", "{{.Dir}}", suite)
	if err != nil {
		return nil, err
	}
	names := make(map[string][]string)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range imageField.FindAllStringSubmatch(string(text), -1) {
			if !slices.Contains(names[m[2]], m[1]) {
				names[m[2]] = append(names[m[2]], m[1])
			}
		}
		return err
	})
	if err == nil && (names["echo-basic"] == nil || names["coredns"] == nil) {
		err = fmt.Errorf("the manifests of %s name the images %v only", suite, names)
	}
	return names, err
}

// program is the file of the program in one of Weir's images.
func (b *builder) program(image string) string {
	name, _, _ := strings.Cut(image, ":")
	return filepath.Join(b.dir, name)
}

// weir builds one of Weir's images as it is released, but for this machine's architecture alone.
func (b *builder) weir(ctx context.Context, name string) (string, error) {
	top := filepath.Join(b.source, "../..")
	program, _, _ := strings.Cut(name, ":")
	binary, packed, file := b.program(name), filepath.Join(b.dir, program+"-image.tar"), filepath.Join(b.dir, program+".tar")
	env := []string{"CGO_ENABLED=0", "GOWORK=off", "GOOS=linux", "GOARCH=" + runtime.GOARCH}
	if _, err := output(ctx, top, env, "go", "build", "-trimpath", "-buildvcs=auto", "-tags", "grpcnotrace", "-o", binary, "./cmd/"+program); err != nil {
		return "", err
	}
	release := filepath.Join(b.dir, "release")
	if _, err := output(ctx, filepath.Join(top, "deploy/release"), nil, "go", "build", "-o", release, "."); err != nil {
		return "", err
	}
	// It takes seconds, so it is not done again for the same programs.
	of, err := digest(release, binary)
	if err != nil {
		return "", err
	}
	note := file + ".of"
	if was, err := os.ReadFile(note); err == nil && bytes.Equal(was, of) {
		if _, err := os.Stat(file); err == nil {
			return file, nil
		}
	}
	if _, err := output(ctx, top, nil, release, "image", "-o", packed, binary); err != nil {
		return "", err
	}
	if err := image.Rename(file, packed, name); err != nil {
		return "", err
	}
	return file, os.WriteFile(note, of, 0o644)
}

// digest of the contents of files.
func digest(files ...string) ([]byte, error) {
	var all []byte
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(text)
		all = fmt.Appendf(all, "%x %s\n", sum, filepath.Base(file))
	}
	return all, nil
}

// output of a command that is run in dir.
func output(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s in %s: %w: %s", strings.Join(append([]string{name}, args...), " "), dir, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSpace(stdout.String()), nil
}

// source is the folder of this module, in which the programs of images are built.
func source() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/weirmesh/weir/test/cluster").Output()
	if err != nil {
		return "", fmt.Errorf("run this in test/cluster: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}
