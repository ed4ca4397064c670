// Command weir stands in a test for the real one of another platform.
package main

func main() {}
