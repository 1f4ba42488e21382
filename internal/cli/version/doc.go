// Package version says which build of Theseus this program is. The Go toolchain writes all of that into a
// binary: the version of the module (of `go install ...@VERSION`, or of the tag that was built), and the commit and
// its date where the source was a git repository. The agent uses it too.
package version
