// Package chart tests charts/theseus with Helm itself. Its module also pins the program helm, which the lab's tests
// run: neither is linked into Theseus.
package chart
