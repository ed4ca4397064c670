package main

import (
	"bytes"
	"fmt"
	"strings"
	"text/template"
)

const (
	homepage = "https://github.com/weirmesh/weir"
	summary  = "Splits, mirrors, matches and measures HTTP traffic"
)

// formula is Homebrew's (docs.brew.sh/Formula-Cookbook), of the archives.
func formula(p published) ([]byte, error) {
	return render(`class Weir < Formula
  desc "`+summary+`"
  homepage "`+homepage+`"
  version "{{trimV .Version}}"
  license "Apache-2.0"
{{range $os := platforms .}}
  on_{{brewOS .Name}} do{{range .Archives}}
    on_{{brewArch .Arch}} do
      url "{{.URL}}"
      sha256 "{{.SHA256}}"
    end{{end}}
  end
{{end}}
  def install
    bin.install "weir"
    bash_completion.install "completions/weir.bash" => "weir"
    zsh_completion.install "completions/_weir"
    fish_completion.install "completions/weir.fish"
  end

  test do
    assert_match "weir {{.Told}}", shell_output("#{bin}/weir version")
  end
end
`, p)
}

// plugin is krew's manifest (krew.sigs.k8s.io/docs/developer-guide/plugin-manifest): the binary as "kubectl weir".
func plugin(p published) ([]byte, error) {
	return render(`apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: weir
spec:
  version: {{printf "%q" .Version}}
  homepage: `+homepage+`
  shortDescription: `+summary+`
  description: |
    Weir is a traffic layer for Kubernetes that reads Gateway API and SMI.
    As a plugin it looks at what there is of it in a cluster: "kubectl weir
    check" judges the objects, "kubectl weir explain" says what becomes of a
    request and why, "kubectl weir status" shows gateways and proxies.
  platforms:{{range .Archives}}
  - selector:
      matchLabels:
        os: {{.OS}}
        arch: {{.Arch}}
    uri: {{printf "%q" .URL}}
    sha256: {{.SHA256}}
    bin: weir
    files:
    - from: {{.Folder}}/weir
      to: .
    - from: {{.Folder}}/LICENSE
      to: .{{end}}
`, p)
}

// system is an operating system with its archives.
type system struct {
	Name     string
	Archives []archive
}

// platforms groups the archives by their systems, in the order given.
func platforms(p published) []system {
	var all []system
	for _, a := range p.Archives {
		if n := len(all); n == 0 || all[n-1].Name != a.OS {
			all = append(all, system{Name: a.OS})
		}
		all[len(all)-1].Archives = append(all[len(all)-1].Archives, a)
	}
	return all
}

func render(text string, p published) ([]byte, error) {
	name := func(names map[string]string) func(string) (string, error) {
		return func(s string) (string, error) {
			if n := names[s]; n != "" {
				return n, nil
			}
			return "", fmt.Errorf("%s has no name there", s)
		}
	}
	t, err := template.New("").Funcs(template.FuncMap{
		"platforms": platforms,
		"brewOS":    name(map[string]string{"darwin": "macos", "linux": "linux"}),
		"brewArch":  name(map[string]string{"amd64": "intel", "arm64": "arm"}),
		"trimV":     func(v string) string { return strings.TrimPrefix(v, "v") },
	}).Parse(text)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = t.Execute(&out, p)
	return out.Bytes(), err
}
