package node

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// SetClock sets the time of day of a container's processes forward by so much, or back, from what the machine's is. The clock of
// the machine stays, and so do clocks that measure intervals, as when a node's clock is set.
func SetClock(id string, by time.Duration) error {
	pids, err := processes(id)
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if err := setClock(pid, by); err != nil {
			return fmt.Errorf("set the clock of process %d: %w", pid, err)
		}
	}
	return nil
}

// setClock replaces the function by which a process asks the kernel's page (vDSO) for the time: by one that asks the kernel itself,
// and adds to what it says of the time of day.
func setClock(pid int, by time.Duration) error {
	seconds := by / time.Second
	if runtime.GOARCH != "amd64" || seconds < math.MinInt32 || seconds > math.MaxInt32 {
		return fmt.Errorf("by %s on %s: want whole seconds of 32 bits on amd64", by, runtime.GOARCH)
	}
	code := []byte{
		0xb8, 228, 0, 0, 0, // mov eax, SYS_clock_gettime
		0x0f, 0x05, //         syscall
		0x85, 0xff, //         test edi, edi
		0x75, 0x07, //         jnz, unless of CLOCK_REALTIME, past the next one
		0x48, 0x81, 0x06, //   add qword [rsi], seconds
	}
	code = append(binary.LittleEndian.AppendUint32(code, uint32(int32(seconds))), 0xc3) // ret
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer memory.Close()
	at, err := clockFunction(pid, memory, len(code))
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	defer syscall.Kill(pid, syscall.SIGCONT)
	for limit := time.Now().Add(stopTimeout); ; time.Sleep(time.Millisecond) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return err
		}
		if _, state, _ := strings.Cut(string(text), ") "); strings.HasPrefix(state, "T") {
			break
		}
		if time.Now().After(limit) {
			return fmt.Errorf("it does not stop: %s", text)
		}
	}
	_, err = memory.WriteAt(code, at)
	return err
}

// clockFunction finds the kernel's function in a process, which has to be as long as what replaces it.
func clockFunction(pid int, memory io.ReaderAt, long int) (int64, error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(maps)) {
		if !strings.HasSuffix(strings.TrimSpace(line), "[vdso]") {
			continue
		}
		span, _, _ := strings.Cut(line, " ")
		from, to, _ := strings.Cut(span, "-")
		first, err := strconv.ParseInt(from, 16, 64)
		if err != nil {
			return 0, err
		}
		end, err := strconv.ParseInt(to, 16, 64)
		if err != nil {
			return 0, err
		}
		page := make([]byte, end-first)
		if _, err := memory.ReadAt(page, first); err != nil {
			return 0, err
		}
		file, err := elf.NewFile(bytes.NewReader(page))
		if err != nil {
			return 0, err
		}
		symbols, err := file.DynamicSymbols()
		if err != nil {
			return 0, err
		}
		for _, s := range symbols {
			if s.Name == "__vdso_clock_gettime" && int(s.Size) >= long {
				return first + int64(s.Value), nil
			}
		}
	}
	return 0, fmt.Errorf("its memory has no __vdso_clock_gettime of %d bytes or more", long)
}
