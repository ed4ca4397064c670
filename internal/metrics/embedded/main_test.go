package embedded

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(serveReports) != "" {
		serveFleet()
		return
	}
	goleak.VerifyTestMain(m)
}
