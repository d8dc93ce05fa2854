// Templates, lambdas, classes in anonymous namespaces: long names and deep chains.
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace {
template <typename T, int N> struct Ring {
    T values[N] = {};
    int at = 0;
    void push(T value) { values[at++ % N] = value; }
    template <typename F> T fold(F f) const {
        T sum{};
        for (const T &value : values) sum = f(sum, value);
        return sum;
    }
};

class Shape {
public:
    virtual ~Shape() = default;
    virtual double area() const = 0;
};
class Square : public Shape {
    double side_;
public:
    explicit Square(double side) : side_(side) {}
    double area() const override { return side_ * side_; }
};
} // namespace

template <typename K, typename V> V lookup(const std::map<K, V> &map, const K &key, V missing) {
    auto found = map.find(key);
    return found == map.end() ? missing : found->second;
}

int main(int argc, char **argv) {
    Ring<double, 16> ring;
    std::map<std::string, int> names;
    std::vector<std::unique_ptr<Shape>> shapes;
    for (int i = 0; i < argc * 100; i++) {
        shapes.push_back(std::make_unique<Square>(i * 0.5));
        names["n" + std::to_string(i % 13)] += i;
        ring.push(shapes.back()->area());
    }
    std::sort(shapes.begin(), shapes.end(),
              [](const auto &a, const auto &b) { return a->area() > b->area(); });
    double sum = ring.fold([](double a, double b) { return a * 0.5 + b; });
    try {
        if (lookup(names, std::string("n5"), 0) < 0) throw std::string(argv[0]);
    } catch (const std::string &text) {
        std::puts(text.c_str());
    }
    std::printf("%f %f\n", sum, shapes.front()->area());
}
