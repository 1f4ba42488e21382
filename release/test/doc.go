// Package test tests releases of the product itself, which take minutes to compile: the slow tests run
// only with THESEUS_FULL=1.
package test
