// Package local carries out Rollouts without a cluster. Nobody there runs pods: the Services of both versions are the
// user's, and the endpoints that a user gives them say what is to be released. A Source stands between files and whoever
// reads them, and lays the steps of each Rollout over the objects that route requests. Files are never written.
//
// A release begins when the Service of the new version, the canary's, gets endpoints that are not those of the stable
// one, or others in the place of all it had, or when somebody asks for it. It is taken back when the canary's Service
// loses all its endpoints, or when somebody asks. It ends when the stable Service has the endpoints of the new version.
//
// What each step is, and which comes next, is decided by internal/rollout alone.
package local
