// Package cloud has the command `theseus mirror cloud`.
package cloud
