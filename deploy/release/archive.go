package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"debug/elf"
	"debug/macho"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"time"
)

// file is one of an archive.
type file struct {
	name string // with slashes, in the archive's folder
	mode int64
	data []byte
}

// shells are what completions are made for, by the name of the file that each shell looks for.
var shells = []string{"_weir", "weir.bash", "weir.fish", "weir.ps1"}

// companions are what goes into an archive beside the binary: the licence, the first page, completions.
func companions(tree, completions string) ([]file, error) {
	var files []file
	add := func(name, from string) error {
		data, err := os.ReadFile(from)
		if err == nil && len(data) == 0 {
			err = fmt.Errorf("%s is empty", from)
		}
		files = append(files, file{name, 0o644, data})
		return err
	}
	for _, name := range []string{"LICENSE", "README.md"} {
		if err := add(name, filepath.Join(tree, name)); err != nil {
			return nil, err
		}
	}
	for _, name := range shells {
		if err := add(path.Join("completions", name), filepath.Join(completions, name)); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// tarGz packs files in the order given, below a folder. Of the machine that it is made on, its clock and its users, nothing is in it.
func tarGz(folder string, files []file, at time.Time) ([]byte, error) {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	w := tar.NewWriter(z)
	made := map[string]bool{}
	write := func(name string, kind byte, mode int64, data []byte) {
		if err == nil {
			err = w.WriteHeader(&tar.Header{Name: name, Typeflag: kind, Mode: mode, Size: int64(len(data)), ModTime: at, Format: tar.FormatUSTAR})
		}
		if err == nil {
			_, err = w.Write(data)
		}
	}
	for _, f := range files {
		name := path.Join(folder, f.name)
		if dir := path.Dir(name); !made[dir] {
			made[dir] = true
			write(dir+"/", tar.TypeDir, 0o755, nil)
		}
		write(name, tar.TypeReg, f.mode, f.data)
	}
	err = cmp.Or(err, w.Close(), z.Close())
	return out.Bytes(), err
}

// stripped fails for a binary with symbols that only debuggers need, which are a third of it.
func stripped(path, goos string) error {
	switch goos {
	case "linux":
		f, err := elf.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		if f.Section(".symtab") == nil {
			return nil
		}
	case "darwin":
		f, err := macho.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		if f.Section("__debug_info") == nil && f.Section("__zdebug_info") == nil {
			return nil
		}
	default:
		return fmt.Errorf("%s: there are no releases for %s", path, goos)
	}
	return fmt.Errorf(`%s is not stripped: build it with -ldflags="-s -w"`, path)
}
