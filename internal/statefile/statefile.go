// Package statefile has the files in which a data plane keeps what it needs when it is started again: written whole, for its own user
// alone, and read with a bound. What they hold, and whether it is still good, is for who reads them to know.
package statefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Write replaces the file at once, so that a reader sees the old state or the new one. It also replaces the temporary file of a
// process that was killed, which uses the same memory.
func Write(path string, data []byte) (err error) {
	next := path + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if _, err = f.Write(data); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// Read reads a file of at most that many bytes.
func Read(path string, limit int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err == nil && len(data) > limit {
		err = fmt.Errorf("%s: is larger than %d bytes", path, limit)
	}
	return data, err
}
