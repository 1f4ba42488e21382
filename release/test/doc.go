// Package test tests releases of the product itself, which take minutes to compile: what is slow runs with
// THESEUS_FULL=1.
package test
