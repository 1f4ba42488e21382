// Package theseus is the root of the module. It holds no code: start at cmd/theseus and docs/design.md.
// Its tests hold the architecture.
package theseus
