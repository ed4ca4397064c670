package examples_test

import (
	"context"
	"io"
	"net/http"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// raw sends and receives messages as they are.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (raw) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}
func (raw) Name() string { return "raw" }

// answerGRPC answers a unary call with one message.
func answerGRPC(message string) func(*service, *http.Server) {
	return handle(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("content-type", "application/grpc")
		w.Header().Set("trailer", "grpc-status")
		_, _ = w.Write(append([]byte{0, 0, 0, 0, byte(len(message))}, message...))
		w.Header().Set("grpc-status", "0")
	})
}

func TestGRPCMethodsAreRoutedSplitAndMirrored(t *testing.T) {
	s := newSetup(t)
	for name, port := range map[string]int{"cart-v1": 9001, "cart-v2": 9002, "audit": 9003} {
		s.listen(name, port, answerGRPC(name))
	}
	s.run("grpc")
	conn, err := grpc.NewClient("passthrough:///"+s.address(8080),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("grpc.example"),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{})))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	call := func(method string) (string, error) {
		in, out := []byte("hello"), []byte(nil)
		err := conn.Invoke(context.Background(), method, &in, &out)
		return string(out), err
	}

	got := map[string]int{}
	for range 10 {
		by, err := call("/shop.Cart/Add")
		if err != nil {
			t.Fatal(err)
		}
		got[by]++
	}
	if got["cart-v1"] != 5 || got["cart-v2"] != 5 {
		t.Errorf("10 calls of Add went to %v, want 5 and 5", got)
	}
	if by, err := call("/shop.Cart/Checkout"); err != nil || by != "cart-v2" {
		t.Errorf("Checkout = %q, %v, want cart-v2", by, err)
	}
	s.services["audit"].wait(t, 1)
	if c := s.services["audit"].requests()[0]; c.target != "/shop.Cart/Checkout" || c.body != "\x00\x00\x00\x00\x05hello" {
		t.Errorf("audit got %+v, want the call with its message", c)
	}
	if _, err := call("/shop.Stock/List"); status.Code(err) != codes.Unimplemented {
		t.Errorf("another service: %v, want Unimplemented", err)
	}
}
