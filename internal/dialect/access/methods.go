package access

import "strings"

// registered are the methods of IANA's Hypertext Transfer Protocol (HTTP) Method Registry (RFC 9110, section 18.2), and PURGE,
// which caches take.
var registered = func() map[string]bool {
	all := map[string]bool{}
	for method := range strings.FieldsSeq(`ACL BASELINE-CONTROL BIND CHECKIN CHECKOUT CONNECT COPY DELETE GET HEAD LABEL LINK LOCK MERGE
		MKACTIVITY MKCALENDAR MKCOL MKREDIRECTREF MKWORKSPACE MOVE OPTIONS ORDERPATCH PATCH POST PRI PROPFIND PROPPATCH PURGE PUT QUERY
		REBIND REPORT SEARCH TRACE UNBIND UNCHECKOUT UNLINK UNLOCK UPDATE UPDATEREDIRECTREF VERSION-CONTROL`) {
		all[method] = true
	}
	return all
}()
