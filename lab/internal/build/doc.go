// Package build makes the programs that a lab runs: Kubernetes, the networks' own programs and
// the lab's, each from source through the module proxy, and keeps them in a cache.
//
// A third-party program is keyed by a hash of all its inputs: its component
// module (go.mod, go.sum, Go files), its flags and the Go version. A program of this repository is
// always handed to `go build`, which detects whether anything changed, and is stored under the
// hash of its content. In both cases the returned path changes exactly when the program does, so an
// image is out of date exactly if its path has changed.
package build
