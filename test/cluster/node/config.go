package node

import (
	"bytes"
	"embed"
	"encoding/json"
	"os"
	"path/filepath"
	"text/template"

	"github.com/weirmesh/weir/test/cluster/components"
)

// Addresses inside a node's network namespace. Nothing is behind them, so that every cluster can have the same.
const (
	// Address of the node, on its bridge "node0". Addresses beside it can be added there, for Gateways say.
	Address = "10.250.0.1"
	// Name of the node.
	Name = "node1"

	podRange = "10.244.0.0/24"
	dns      = "10.96.0.10"
)

// Images that a node cannot do without, by the names they must have in their files.
const (
	Pause   = "weir.invalid/pause:1"
	CoreDNS = "weir.invalid/coredns:1"
)

//go:embed files
var files embed.FS

// config is what a node is told by the process that starts it, in the file node.json of its folder.
type config struct {
	Dir    string
	Images []string // files to import
	Cache  components.Cache
}

func (c *config) path(name string) string { return filepath.Join(c.Dir, name) }

// socket is containerd's.
func (c *config) socket() string { return c.path("containerd.sock") }

func (c *config) save() error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return os.WriteFile(c.path("node.json"), text, 0o600)
}

func load(dir string) (*config, error) {
	c := &config{Dir: dir}
	text, err := os.ReadFile(c.path("node.json"))
	if err != nil {
		return nil, err
	}
	return c, json.Unmarshal(text, c)
}

// write fills in an embedded file and writes it to the folder, or to the one below it that is named.
func (c *config) write(name string, below ...string) error {
	t, err := template.ParseFS(files, "files/"+name)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := t.Execute(&text, map[string]string{
		"Dir": c.Dir, "Socket": c.socket(), "Address": Address, "Name": Name, "PodRange": podRange, "Group": c.group(), "DNS": dns,
		"Pause": Pause, "CoreDNS": CoreDNS, "Plugins": plugins,
	}); err != nil {
		return err
	}
	dir := filepath.Join(append([]string{c.Dir}, below...)...)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name), text.Bytes(), 0o600)
}
