package resource

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// maxFile bounds a file, in bytes: a large file that is there by mistake must not fill the memory, or hold up the
// others.
const maxFile = 64 << 20

var (
	errNoFile  = errors.New("it is neither a file nor a folder (a pipe, a socket or a device); the path - reads the standard input")
	errVirtual = errors.New("it is in a file system that the kernel makes up, such as /proc, which holds no configuration")
)

// openAtOnce opens a file or folder for reading. It does not wait for the other end of a named pipe.
func openAtOnce(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// real returns errVirtual if an open file or folder is not on a disk, or in memory like one.
func real(f *os.File) error {
	if virtual(f) {
		return errVirtual
	}
	return nil
}

// content reads a file of bounded size. It is judged once it is open: what a path leads to may change at any time.
func content(path string) ([]byte, os.FileInfo, error) {
	f, err := openAtOnce(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, info, errNoFile
	}
	if err := real(f); err != nil {
		return nil, info, err
	}
	if info.Size() > maxFile {
		return nil, info, fmt.Errorf("it has %d bytes, more than %d", info.Size(), int64(maxFile))
	}
	text := make([]byte, 0, info.Size()+512)
	for { // as os.ReadFile does; the file may have grown
		n, err := f.Read(text[len(text):cap(text)])
		text = text[:len(text)+n]
		switch {
		case len(text) > maxFile:
			return nil, info, fmt.Errorf("it has more than %d bytes", int64(maxFile))
		case err == io.EOF:
			return text, info, nil
		case err != nil:
			return nil, info, err
		case len(text) == cap(text):
			text = append(text, 0)[:len(text)]
		}
	}
}
