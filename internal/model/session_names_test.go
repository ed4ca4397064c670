package model_test

import (
	"testing"

	"github.com/weirmesh/weir/internal/model"
)

func TestHeadersWithAnotherUseCarryNoSessions(t *testing.T) {
	for name, good := range map[string]bool{
		"x-session": true, "weir-0123456789ab": true, "X-My-Via": true,
		"Via": false, "weir-via": false, "Weir_Mirrored": false, "authorization": false, "X-Forwarded-Foo": false, "Content_Length": false,
		"access-control-allow-origin": false, "grpc-status": false, "ETag": false, "cache-control": false,
	} {
		if fault := model.SessionNameFault(model.Header, name); (fault == "") != good {
			t.Errorf("%s: %q", name, fault)
		}
	}
	if fault := model.SessionNameFault(model.Cookie, "Via"); fault != "" {
		t.Errorf("a cookie may be called Via: %s", fault)
	}
}
